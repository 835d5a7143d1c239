import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Literal

import pytest

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.pipeline.commands import plan_command
from compress.pipeline.commands.plan_command import hour_limit, preview, share_of_rows
from compress.pipeline.forecast.cost_estimates import Estimates, TrainingEstimate
from compress.pipeline.forecast.time_forecast import forecast, measured_memory
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_store import StepRecord, StepStore
from compress.recipe.field_types import Role


def record(kind: str, seconds: float, **settings: object) -> StepRecord:
    return StepRecord(
        step=kind,
        kind=kind,
        fingerprint="f",
        settings=settings,
        inputs={},
        digest="d",
        seconds=seconds,
        machine="here",
        versions={},
        peak_memory=1,
        created="2026-01-01T00:00:00+00:00",
    )


def test_most_similar_settings_are_used(tmp_path: Path, recipe_file: Path) -> None:
    plan = prepare(recipe_file, [], Options(runs=tmp_path))
    step = plan.step("export-student-onnx-fp32")
    records = [record("export", 99.0, variant="other"), record("export", 5.0, variant="onnx-fp32")]
    assert forecast(step, records).seconds == 5.0


def test_measuring_takes_as_long_as_its_budget(tmp_path: Path, recipe_file: Path) -> None:
    def forecast_with(budget: str) -> tuple[float | None, str]:
        plan = prepare(recipe_file, [f"measure.budget={budget}"], Options(runs=tmp_path))
        made = forecast(plan.step("measure"), [record("measure", 33.0, measure={"budget": 30.0})])
        return made.seconds, made.basis

    assert forecast_with("30s") == (33.0, "1 earlier run here")
    assert forecast_with("5m") == (300.0, "measure.budget")
    assert forecast_with("null") == (None, "no earlier run here")


def test_other_kinds_of_steps_are_not_used(tmp_path: Path, recipe_file: Path) -> None:
    plan = prepare(recipe_file, [], Options(runs=tmp_path))
    made = forecast(plan.step("finetune"), [record("report", 10.0)])
    assert (made.seconds, made.basis) == (None, "no earlier run here")


def test_throughput_of_trainings_is_used_with_operations(tmp_path: Path, recipe_file: Path) -> None:
    plan = prepare(recipe_file, [], Options(runs=tmp_path))
    rates = {"seconds_per_operation": 2.0, "trained": 8.0}
    expected = TrainingEstimate(operations=30.0, memory=1, disk=1)
    records = [record("finetune", 10.0).model_copy(update={"rates": rates})]
    assert forecast(plan.step("finetune"), records, expected).seconds == 62.0
    other = forecast(plan.step("distill"), records, expected)
    assert (other.seconds, other.basis[-10:]) == (62.0, "(finetune)")


def test_the_time_of_a_probe_follows_its_operations(tmp_path: Path, recipe_file: Path) -> None:
    plan = prepare(recipe_file, [], Options(runs=tmp_path))
    rates = {"seconds_per_operation": 2.0, "trained": 8.0, "probe_operations": 0.5}
    expected = TrainingEstimate(operations=30.0, memory=1, disk=1)
    records = [record("finetune", 10.0).model_copy(update={"rates": rates})]
    assert forecast(plan.step("finetune"), records, expected).seconds == 61.0


@pytest.mark.parametrize(("kind", "roles"), [("score", ("select", "test")), ("fallback", ("select",))])
def test_predicting_time_follows_the_limit(finished_run: Path, kind: str, roles: tuple[Role, ...]) -> None:
    options = Options(runs=finished_run.parent / "runs")
    plan = prepare(finished_run.parent / "tiny.yaml", ["task.data.limit=4"], options)
    estimates = Estimates(plan, StepStore(options.root))
    earlier = next(each for each in estimates.store.records() if each.kind == kind)
    counts = load_prepared(estimates.store.folder("data", earlier.inputs["data"].fingerprint)).info.counts
    share = 4 * len(roles) / sum(counts[role] for role in roles)
    assert estimates.scaled(earlier).seconds == pytest.approx(earlier.seconds * share)
    other = next(each for each in estimates.store.records() if each.kind == "finetune")
    assert estimates.scaled(other) is other
    removed = earlier.model_copy(
        update={"inputs": {"data": earlier.inputs["data"].model_copy(update={"fingerprint": "x"})}}
    )
    assert estimates.scaled(removed) is removed


def test_rates_of_older_versions_are_ignored(tmp_path: Path, recipe_file: Path) -> None:
    plan = prepare(recipe_file, ["finetune.epochs=4"], Options(runs=tmp_path))
    expected = TrainingEstimate(operations=30.0, memory=1, disk=1)
    records = [record("finetune", 10.0).model_copy(update={"rates": {"operation": 1e-12, "trained": 9.0}})]
    assert forecast(plan.step("finetune"), records, expected).seconds == 10.0


def test_trainings_of_unknown_rows_are_unknown(recipe_file: Path, finished_run: Path) -> None:
    options = Options(runs=finished_run.parent / "runs")
    rows = preview(prepare(finished_run.parent / "tiny.yaml", ["task.data.split_seed=3"], options), options)
    basis = {row["step"]: row["basis"] for row in rows}
    assert basis["finetune"] == basis["distill"] == "the rows or the model are not known yet"
    assert basis["report"] == "1 earlier run here"


def test_memory_is_the_measured_peak_of_the_most_similar_steps(tmp_path: Path, recipe_file: Path) -> None:
    step = prepare(recipe_file, [], Options(runs=tmp_path)).step("finetune")
    old = record("finetune", 1.0).model_copy(update={"schema_version": 1, "peak_memory": 999})
    new = record("finetune", 1.0).model_copy(update={"schema_version": 2, "peak_memory": 500})
    assert measured_memory(step, [old, new, record("report", 1.0)]) == 500
    assert measured_memory(step, [old]) is None


def test_rows_that_take_an_hour() -> None:
    def share(*counts: int) -> Callable[[int], float]:
        return lambda limit: sum(min(count, limit) for count in counts) / sum(counts)

    train, scored, always = share(100_000), share(2_000, 10_000), lambda limit: 1.0
    due = [(100.0, always), (9000.0, train), (5000.0, train), (100.0, always)]
    assert hour_limit(due, 100_000) == 24_000  # 3,400 of 14,000 seconds
    assert hour_limit([*due, (3600.0, always)], 100_000) is None
    assert hour_limit([(3600.0, train)], 100_000) is None
    # 583 seconds of training, 3,030 of scoring 10,100 rows
    assert hour_limit([(7200.0, train), (3600.0, scored)], 100_000) == 8_000
    assert hour_limit([(4000.0, share(10_000))], 100_000) == 9_000
    more_epochs = [(7200.0, lambda limit: limit / 100_000 * (2 if limit < 30_000 else 1))]
    assert hour_limit(more_epochs, 100_000) == 50_000
    assert hour_limit([(18_000.0, more_epochs[0][1])], 100_000) == 10_000


@pytest.mark.parametrize("style", ["human", "json"])
def test_a_plan_of_hours_says_which_limit_takes_one(
    style: Literal["human", "json"], finished_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(runs=finished_run.parent / "runs")
    plan = prepare(finished_run.parent / "tiny.yaml", [], options)
    monkeypatch.setattr(plan_command, "hour_limit", lambda due, total: 10 * total)
    out, err = StringIO(), StringIO()
    plan_command.show_plan(plan, options, Console(style, out=out, err=err))
    counts = Estimates(plan, StepStore(options.root)).counts
    assert counts is not None
    limit = 10 * counts["train"]
    if style == "json":
        assert json.loads(out.getvalue())["rows_in_an_hour"] == limit
    else:
        line = f"with about {limit:,} rows of train it would take an hour: --set task.data.limit={limit}"
        assert line in " ".join(err.getvalue().split())


def test_trainings_and_scoring_follow_the_rows(tmp_path: Path, finished_run: Path) -> None:
    options = Options(runs=finished_run.parent / "runs")
    plan = prepare(finished_run.parent / "tiny.yaml", [], options)
    estimates = Estimates(plan, StepStore(options.root))
    counts = estimates.counts
    assert counts is not None
    share = {step.kind: share_of_rows(step, 4, estimates) for step in plan.steps}
    assert share["finetune"] == share["distill"] == pytest.approx(4 / counts["train"])
    assert share["score"] == pytest.approx(8 / (counts["select"] + counts["test"]))
    assert share["export"] == share["measure"] == 1.0


def test_fewer_rows_are_trained_for_more_epochs(finished_run: Path) -> None:
    options = Options(runs=finished_run.parent / "runs")
    plan = prepare(finished_run.parent / "tiny.yaml", ["finetune={}"], options)
    estimates = Estimates(plan, StepStore(options.root))
    finetune = next(model for model in plan.models if model.step == "finetune")
    assert estimates.rows(finetune, 4) == 4
    assert estimates.trained_rows(finetune, 4) == 40
    counts = {"train": 50_000, "select": 2, "test": 2}
    estimates._roles.info = estimates._roles.info.model_copy(update={"counts": counts})
    assert estimates.trained_rows(finetune) == 4 * 50_000
    assert estimates.trained_rows(finetune, 20_000) == 6 * 20_000
