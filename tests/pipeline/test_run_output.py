"""What a run shows of its steps: a line a stage, and the rest in its log."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from compress.console import Console
from compress.errors import CompressError, ModelError, ScreenedOut
from compress.pipeline import stages
from compress.pipeline.execute import Executor
from compress.pipeline.fingerprint import VERSIONS
from compress.pipeline.graph import Plan
from compress.pipeline.run_output import LOG_FILE
from compress.pipeline.stages import STAGES
from compress.pipeline.step_store import StepStore
from compress.pipeline.torchrun_launch import Launch


class Terminal(io.StringIO):
    def isatty(self):
        return True


def work(context):
    with context.console.progress(4, "train", "rows") as progress:
        progress.advance(4)
    context.console.note("a detail")
    context.console.warn("few rows")
    (context.work / "out").write_text("x")


def quiet_work(context):
    (context.work / "out").write_text(str(context.work.name))


def write_selection(context):
    verdicts = [{"target": "cpu", "winner": "pruned/onnx-int8"}, {"target": "cuda", "winner": None}]
    (context.work / "ledger.json").write_text(json.dumps({"verdicts": verdicts}))


def fail(context):
    raise ModelError("no such luck")


def screen_out(context):
    raise ScreenedOut("slower and worse")


def make_plan(*, failing=False, forced=""):
    plan = Plan(SimpleNamespace(track=None, task=SimpleNamespace(kind="classification")))
    steps = {
        "finetune": ("finetune", work),
        "distill": ("distill", fail if failing else quiet_work),
        "export-a": ("export", quiet_work),
        "score-a": ("score", quiet_work),
        "admit-b": ("admit", screen_out),
        "score-b": ("score", quiet_work),
        "measure": ("measure", quiet_work),
        "select": ("select", write_selection),
    }
    for name, (kind, run) in steps.items():
        plan.add(name, kind, {"variants": ["a", "b"], "again": name == forced}, [], run, optional=True)
    return plan


def run(plan, root: Path, *, verbose=False, terminal=False, format="human", remaining=None, until=None, phase=""):
    err = Terminal() if terminal else io.StringIO()
    console = Console(format, io.StringIO(), err, verbose=verbose)
    log = root / "run" / LOG_FILE
    Executor(plan, StepStore(root), console, root / "events.jsonl", Launch(), log, remaining, phase).run(set(), until)
    return err.getvalue(), log.read_text()


def test_a_person_reads_one_line_a_stage(tmp_path):
    shown, log = run(make_plan(), tmp_path)
    assert shown.splitlines() == [
        "warning: few rows",
        "fine-tuning the teacher: < 1 s",
        "distilling the student: < 1 s",
        "building and scoring variants: < 1 s; 2 variants scored",
        "timing variants: < 1 s; 2 variants",
        "choosing the winner, report: < 1 s; pruned/onnx-int8 on cpu, no winner on cuda",
    ]
    for line in (
        "[1/8] finetune",
        "a detail",
        "warning: few rows",
        "admit-b skipped: slower and worse",
        *shown.splitlines(),
    ):
        assert line in log


@pytest.mark.slow
def test_without_a_terminal_long_work_shows_a_line_a_minute(tmp_path, monkeypatch):
    assert "train: 4" not in run(make_plan(), tmp_path / "short")[0]
    monkeypatch.setattr("compress.pipeline.run_output.PROGRESS_INTERVAL", 0.0)
    assert "train: 4" in run(make_plan(), tmp_path)[0]
    assert "train: 4" not in run(make_plan(), tmp_path / "quiet", format="quiet")[0]


def test_stages_that_did_not_change_share_a_line(tmp_path):
    run(make_plan(), tmp_path)
    shown, _ = run(make_plan(forced="measure"), tmp_path)
    assert shown.splitlines() == [
        "nothing changed: fine-tuning the teacher, distilling the student",
        "nothing changed: building and scoring variants",  # of which one was screened out again
        "timing variants: < 1 s; 2 variants",
        "nothing changed: choosing the winner, report",
    ]
    shown, _ = run(make_plan(forced="score-b"), tmp_path)
    assert "building and scoring variants: < 1 s; 2 variants scored; 2 steps of an earlier run" in shown


@pytest.mark.parametrize(
    ("kinds", "begins"), [(["light", "light"], "b, the last of 2: 2 layers"), (["prune", "recover"], "2 layers")]
)
def test_a_stage_of_several_models_says_which_one_it_is_about(tmp_path, monkeypatch, kinds, begins):
    steps = [SimpleNamespace(name=name, kind=kind, stage="") for name, kind in zip("ab", kinds, strict=True)]
    shape = SimpleNamespace(layers=2, hidden=8, heads=(1, 1), parameters=100)
    monkeypatch.setattr(stages, "find_info", lambda _: SimpleNamespace(task=None, training=None, shape=shape))
    made = stages.StageSteps(steps, {step.name: tmp_path for step in steps})
    assert stages.stage_of(steps[-1]).outcome(made).startswith(begins)


def test_the_log_is_appended_to_and_has_times(tmp_path):
    _, first = run(make_plan(), tmp_path)
    _, both = run(make_plan(), tmp_path)
    assert both.startswith(first)
    assert "finetune: nothing changed, skipped" in both
    assert all(line[:2] == "20" and line[4] == "-" for line in both.splitlines())


def test_verbose_shows_what_is_logged(tmp_path):
    shown, _ = run(make_plan(), tmp_path, verbose=True)
    assert "[1/8] finetune\na detail\nwarning: few rows\n" in shown
    assert shown.count("few rows") == 1


@pytest.mark.parametrize("format", ["quiet", "json"])
def test_other_formats_log_too(tmp_path, format):
    shown, log = run(make_plan(), tmp_path, format=format)
    assert ("distilling" in shown) == (format == "json")
    assert "a detail" in log
    assert "warning: few rows\n" in shown


def test_what_failed_is_counted_and_logged(tmp_path):
    shown, log = run(make_plan(failing=True), tmp_path)
    assert "warning: distill failed: no such luck\ndistilling the student: < 1 s; 1 failed\n" in shown
    assert "distill failed: no such luck" in log


def test_a_run_that_stops_logs_why(tmp_path):
    plan = Plan(SimpleNamespace(track=None, task=SimpleNamespace(kind="classification")))
    plan.add("finetune", "finetune", {}, [], fail)
    with pytest.raises(CompressError):
        run(plan, tmp_path)
    assert "finetune failed: no such luck" in (tmp_path / "run" / LOG_FILE).read_text()


def test_a_terminal_shows_the_time_left_and_the_work(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    due = []

    def remaining(steps, spent):
        due.append([step.name for step in steps])
        return "about 3 min left"

    shown, _ = run(make_plan(), tmp_path, terminal=True, remaining=remaining, phase="search 2/3")
    assert "about 3 min left" in shown
    assert "search 2/3 [1/" in shown
    assert "fine-tuning the teacher: < 1 s" in shown
    assert due == sorted(due, key=len, reverse=True)


def test_the_time_left_ends_with_the_last_step_that_is_wanted(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    due = set()

    def remaining(steps, spent):
        due.update(step.name for step in steps)
        return ""

    shown, _ = run(make_plan(), tmp_path, terminal=True, remaining=remaining, until="distill")
    assert due <= {"finetune", "distill"}
    assert "/2] " in shown


def test_every_kind_of_step_has_one_stage():
    kinds = [kind for stage in STAGES for kind in stage.kinds]
    assert len(kinds) == len(set(kinds))
    assert set(VERSIONS) <= set(kinds)
