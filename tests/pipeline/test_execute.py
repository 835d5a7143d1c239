"""The executor on plans of small made-up steps: what is reused, what fails, and what is recorded."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compress.console import Console
from compress.errors import CompressError, ModelError, ScreenedOut
from compress.model_folder.model_info import FolderInfo, Parent, read_info, write_info
from compress.pipeline import execute, fingerprint, step_store
from compress.pipeline.execute import Executor, Outcome
from compress.pipeline.graph import Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.step_store import StepStore, content_digest
from compress.pipeline.torchrun_launch import Launch


def write(text: str) -> Callable[[StepContext], None]:
    """A step that writes a file after those of its inputs."""

    def run(context: StepContext) -> None:
        before = [(folder / "out").read_text() for folder in context.inputs.values()]
        (context.work / "out").write_text("".join([*before, text]))

    return run


def fail(context: StepContext) -> None:
    raise ModelError("no such luck", hint="try again")


def make_plan(**steps: dict[str, Any]) -> Plan:
    plan = Plan(SimpleNamespace(track=None, task=SimpleNamespace(kind="classification")))  # type: ignore[arg-type]
    for name, step in steps.items():
        given = {"kind": "export", "settings": {}, "needs": (), "run": write(name), **step}
        plan.add(name, **given)
    return plan


def run(plan: Plan, root: Path, *forced: str) -> Outcome:
    return Executor(plan, StepStore(root), Console("quiet"), root / "events.jsonl", Launch()).run(set(forced))


def chain(first: dict[str, Any]) -> Plan:
    return make_plan(first=first, second={"needs": ["first"]}, third={"needs": ["second"]})


def test_steps_after_an_equal_result_are_reused(tmp_path: Path) -> None:
    run(chain({"settings": {"a": 1}, "run": write("x")}), tmp_path)
    outcome = run(chain({"settings": {"a": 2}, "run": write("x")}), tmp_path)
    assert outcome.status == {"first": "ran", "second": "cached", "third": "cached"}
    outcome = run(chain({"settings": {"a": 3}, "run": write("y")}), tmp_path)
    assert set(outcome.status.values()) == {"ran"}


def test_a_step_that_was_killed_before_its_renaming_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(step_store, "atomic_replace_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            run(make_plan(first={"run": write("x")}), tmp_path)
    outcome = run(make_plan(first={"run": fail}), tmp_path)
    assert outcome.status == {"first": "ran"}
    folder = StepStore(tmp_path).folder_of(outcome.records["first"])
    assert sorted(path.name for path in folder.iterdir()) == ["out", "step.json"]
    assert outcome.records["first"].digest == content_digest(folder)


def test_what_ran_on_another_machine_runs_again_and_says_so_once(tmp_path: Path) -> None:
    def on(machine: str, *forced: str) -> tuple[Outcome, str]:
        settings = {"machine": machine, "seed": 0}
        plan = make_plan(table={"settings": settings}, times={"settings": settings})
        console = Console("human", err=io.StringIO())
        outcome = Executor(plan, StepStore(tmp_path), console, tmp_path / "events.jsonl", Launch()).run({*forced})
        return outcome, console.err.getvalue()  # type: ignore[attr-defined]

    assert "another machine" not in on("one")[1]
    outcome, shown = on("other")
    assert {*outcome.status.values()} == {"ran"}
    assert shown.count("table runs again: its result is of another machine, or another number of cores") == 1
    assert shown.count("another machine") == 1
    assert "another machine" not in on("one")[1]
    assert "another machine" not in on("third", "table", "times")[1]
    assert "another machine" not in on("third", "table")[1]


def test_a_raised_version_with_an_equal_result_redoes_only_that_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(chain({"kind": "score"}), tmp_path)
    monkeypatch.setitem(fingerprint.VERSIONS, "score", 99)
    outcome = run(chain({"kind": "score"}), tmp_path)
    assert outcome.status == {"first": "ran", "second": "cached", "third": "cached"}


def test_a_reused_result_stays_when_the_one_it_was_shared_with_is_removed(tmp_path: Path) -> None:
    run(chain({"settings": {"a": 1}, "run": write("x")}), tmp_path)
    old = set((tmp_path / ".steps").glob("*-*"))
    plan = chain({"settings": {"a": 2}, "run": write("x")})
    run(plan, tmp_path)
    for folder in old:
        StepStore(tmp_path).discard(folder)
    assert set(run(plan, tmp_path).status.values()) == {"cached"}
    record = StepStore(tmp_path).record("third", plan.step("third").fingerprint)
    assert record is not None
    assert record.inputs["second"].fingerprint == plan.step("second").fingerprint


def test_a_record_that_cannot_be_read_is_no_result(tmp_path: Path) -> None:
    plan = make_plan(first={})
    record = StepStore(tmp_path).folder_of(run(plan, tmp_path).records["first"]) / "step.json"
    content = json.loads(record.read_bytes())
    del content["version"]
    record.write_text(json.dumps(content))
    assert run(plan, tmp_path).status == {"first": "ran"}


def test_a_record_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    plan = make_plan(first={})
    record = StepStore(tmp_path).folder_of(run(plan, tmp_path).records["first"]) / "step.json"
    record.write_text(record.read_text().replace('"schema_version": 2', '"schema_version": 3'))
    with pytest.raises(CompressError, match="written by a newer version of compress"):
        run(plan, tmp_path)


def test_forced_steps_run_and_equal_results_stop_there(tmp_path: Path) -> None:
    plan = chain({})
    run(plan, tmp_path)
    assert run(plan, tmp_path, "first").status == {"first": "ran", "second": "cached", "third": "cached"}


def test_a_failed_optional_step_skips_what_needs_it(tmp_path: Path) -> None:
    plan = make_plan(
        bad={"run": fail, "optional": True, "kind": "distill"},
        after={"needs": ["bad"]},
        apart={},
        last={"needs": ["apart", "after"], "tolerant": True},
    )
    outcome = run(plan, tmp_path)
    assert outcome.status == {"bad": "failed", "after": "skipped", "apart": "ran", "last": "ran"}
    assert outcome.failures == {"bad": "no such luck (try again)", "after": "needs bad, which failed"}


def test_a_step_that_is_not_worth_its_time_is_skipped_with_what_needs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(context: StepContext) -> None:
        raise ScreenedOut("too slow")

    plan = make_plan(kept_out={"run": refuse, "optional": True}, after={"needs": ["kept_out"]})
    outcome = run(plan, tmp_path)
    assert outcome.status == {"kept_out": "skipped", "after": "skipped"}
    assert outcome.failures["kept_out"] == "too slow"
    assert capsys.readouterr().err == ""


def test_other_processes_go_on_without_a_training_that_is_skipped(tmp_path: Path) -> None:
    def together(rank: int) -> Outcome:
        plan = make_plan(bad={"run": fail, "optional": True}, after={"needs": ["bad"], "trains": True})
        launch = Launch(rank, 2, "one")
        return Executor(plan, StepStore(tmp_path), Console("quiet"), tmp_path / "events.jsonl", launch).run(set())

    assert together(0).status == {"bad": "failed", "after": "skipped"}
    assert together(1).status == {}


def test_a_failed_required_step_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such luck"):
        run(make_plan(bad={"run": fail}, after={"needs": ["bad"]}), tmp_path)


def test_lineage_is_in_the_record_and_not_in_the_model_folder(tmp_path: Path) -> None:
    def model(context: StepContext) -> None:
        parent = Parent(step="x", fingerprint="y", digest="z")
        write_info(context.work, FolderInfo(step="export", made_by="compress 9", parents=(parent,)))

    plan = make_plan(first={}, model={"needs": ["first"], "run": model})
    record = run(plan, tmp_path).records["model"]
    info = read_info(StepStore(tmp_path).folder_of(record))
    assert (info.made_by, info.parents) == ("", ())
    assert record.made_by.startswith("compress ")
    assert set(record.inputs) == {"first"}


def test_an_effect_outside_the_store_is_repeated_where_it_is_gone(tmp_path: Path) -> None:
    effect = tmp_path / "effect"
    plan = make_plan(first={"run": lambda context: effect.touch(), "in_effect": lambda context: effect.exists()})
    assert run(plan, tmp_path).status == {"first": "ran"}
    assert run(plan, tmp_path).status == {"first": "cached"}
    effect.unlink()
    assert run(plan, tmp_path).status == {"first": "ran"}


def test_peak_memory_is_the_steps_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not execute.reset_peak_memory():
        pytest.skip("this system does not reset the peak")

    def large(context: StepContext) -> None:
        bytearray(b"x" * (300 << 20))

    outcome = run(make_plan(large={"run": large}, small={}), tmp_path)
    peaks = [outcome.records[name].peak_memory or 0 for name in ("large", "small")]
    assert peaks[0] - peaks[1] > 200 << 20
    monkeypatch.setattr(execute, "reset_peak_memory", lambda: False)
    assert run(make_plan(other={}), tmp_path).records["other"].peak_memory is None
