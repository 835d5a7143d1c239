"""Times before the first run: from the files' rows, the shape of the models and a rate that is measured in a moment."""

import csv
import gzip
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.errors import DataError
from compress.pipeline.commands import plan_command
from compress.pipeline.commands.plan_command import hour_limit, preview, share_of_rows, show_plan, stage_rows
from compress.pipeline.forecast import cost_estimates, step_forecasts, time_forecast
from compress.pipeline.forecast.cost_estimates import Estimates, TrainingEstimate
from compress.pipeline.forecast.raw_sample import ASSUMED_ROWS, raw_sample
from compress.pipeline.forecast.step_forecasts import format_span, time_left
from compress.pipeline.forecast.time_forecast import RoughTimes, forecast, matrix_rate, measured_memory
from compress.pipeline.graph import Plan
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_store import StepRecord, StepStore
from compress.recipe.field_types import Role
from compress.recipe.training_schema import Finetune
from compress.train.training_costs import expected_length


def record(kind: str, seconds: float, **settings: object) -> StepRecord:
    return StepRecord(
        step=kind,
        kind=kind,
        version=1,
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
    unknown = record("finetune", 1.0).model_copy(update={"peak_memory": None})
    known = record("finetune", 1.0).model_copy(update={"peak_memory": 500})
    assert measured_memory(step, [unknown, known, record("report", 1.0)]) == 500
    assert measured_memory(step, [unknown]) is None


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


@pytest.fixture
def rows(tmp_path):
    def write(count, words=10, name="rows.csv"):
        path = tmp_path / name
        with gzip.open(path, "wt") if name.endswith(".gz") else path.open("w") as stream:
            writer = csv.writer(stream)
            writer.writerow(["text", "label"])
            writer.writerows(["good film " * (words // 2), "good" if row % 2 else "bad"] for row in range(count))
        return path

    return write


@pytest.fixture
def plan_of(recipe_file, tmp_path):
    def make(path, *overrides):
        data = f"task.data={{train: {path}, test_share: 0.1}}"
        return prepare(recipe_file, [data, *overrides], Options(runs=tmp_path / "runs"))

    return make


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.tsv"])
def test_rows_are_counted_and_their_lengths_estimated(rows, plan_of, name):
    path = rows(200, 20, name)
    if name.endswith("tsv"):
        path.write_text(path.read_text().replace(",", "\t"))
    task = plan_of(path).recipe.task.model_copy(update={"max_length": 128})
    sample = raw_sample(task)
    assert sample.counts["train"] == 200
    assert 20 <= sample.lengths.mean() <= 30  # tokens of 20 words
    assert sample.counts["select"] > 0
    assert sample.text.endswith(" rows")
    limited = task.model_copy(update={"data": task.data.model_copy(update={"limit": 50})})
    assert raw_sample(limited).counts["train"] == 50


def test_of_parquet_only_the_columns_of_the_task_are_read(tmp_path, plan_of):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    unreadable = pyarrow.array([2**49] * 30, pyarrow.timestamp("s"))  # beyond what Python has
    columns = {"text": ["a word " * 20] * 30, "label": ["yes", "no"] * 15, "at": unreadable}
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    sample = raw_sample(plan_of(tmp_path / "rows.parquet").recipe.task.model_copy(update={"max_length": 128}))
    assert sample.counts["train"] == 30
    assert set(sample.lengths.tolist()) == {33}


def test_of_labelled_rows_so_many_are_trained_on(rows, plan_of):
    task = plan_of(rows(200), "task.data.labelled=50").recipe.task
    sample = raw_sample(task)
    assert (sample.counts["train"], sample.unlabelled) == (50, 150)


def test_rows_in_broken_gzip_are_one_message(rows, plan_of):
    path = rows(2000, 20, "rows.csv.gz")
    task = plan_of(path).recipe.task
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="broken gzip"):
        raw_sample(task)


def test_gzip_by_another_name_is_counted_unpacked(rows, plan_of):
    path = rows(200, 20, "rows.csv.gz")
    task = plan_of(path.rename(path.with_name("rows.csv"))).recipe.task
    assert raw_sample(task).counts["train"] == 200


def test_sets_that_are_not_here_are_assumed(plan_of, rows):
    task = plan_of(rows(20)).recipe.task
    hub = task.model_copy(update={"data": task.data.model_copy(update={"hub": "owner/set", "train": None})})
    assert raw_sample(hub).text == f"an assumed {ASSUMED_ROWS:,} rows"


def test_more_rows_take_longer_and_nothing_is_unknown(rows, plan_of, tmp_path, monkeypatch):
    monkeypatch.setattr(step_forecasts, "matrix_rate", lambda: 1e7)

    def times(count):
        plan = plan_of(rows(count))
        return {row["step"]: row for row in preview(plan, Options(runs=tmp_path / "runs"))}

    few, many = times(100), times(10_000)
    for name in ("finetune", "distill", "recover"):
        assert 0 < few[name]["least"] < few[name]["most"] == pytest.approx(4 * few[name]["least"])
        assert many[name]["least"] > few[name]["least"]
    assert few["export-teacher-onnx-fp32"]["most"] == many["export-teacher-onnx-fp32"]["most"]
    assert all(row["most"] > 0 for row in few.values())
    assert not (tmp_path / "runs" / ".steps").exists()


def test_rough_times_follow_the_rate(rows, plan_of, tmp_path):
    plan = plan_of(rows(2_000))
    estimates = Estimates(plan, StepStore(tmp_path / "runs"), raw=raw_sample(plan.recipe.task))
    slow, fast = (RoughTimes(estimates, rate).seconds(plan.step("finetune"))[0] for rate in (1e7, 1e9))
    assert slow - time_forecast.START == pytest.approx(100 * (fast - time_forecast.START))


def test_measuring_takes_its_budget_or_its_rounds(rows, plan_of, tmp_path):
    def seconds(*overrides):
        plan = plan_of(rows(20), *overrides)
        return RoughTimes(Estimates(plan, StepStore(tmp_path)), 1e9).seconds(plan.step("measure"))[0]

    assert seconds("measure={budget: 7m}") == 420
    assert seconds("measure={rounds: 30}") > seconds("measure={rounds: 3, processes: 1}") > 0


def test_the_rate_is_one_of_matrix_products():
    assert 1e7 < matrix_rate() < 1e15


def test_a_plan_shows_stages_and_a_range_first_and_everything_with_all(rows, plan_of, tmp_path):
    plan, options = plan_of(rows(300)), Options(runs=tmp_path / "runs")
    texts = {}
    for whole in (False, True):
        out, err = StringIO(), StringIO()
        show_plan(plan, options, Console(out=out, err=err), whole=whole)
        texts[whole] = out.getvalue()
        assert "from a short measurement of this machine and 30" in err.getvalue()
        assert ("--all prints" in err.getvalue()) is not whole
        assert "--calibrate" in err.getvalue()
    assert len(texts[False].splitlines()) < 15
    assert "fine-tuning the teacher" in texts[False]
    assert "learning_rate" not in texts[False]
    assert "learning_rate" in texts[True]
    assert "quantize-teacher-onnx-int8" in texts[True]


def test_a_stage_says_how_much_of_it_is_done(rows, plan_of):
    plan = plan_of(rows(20))
    nothing = {"state": "to do", "least": 10.0, "most": 40.0}
    forecasts = [{"step": step.name, **nothing} for step in plan.steps]
    by_stage = {row["stage"]: row for row in stage_rows(plan, forecasts)}
    assert by_stage["timing variants"] == {"stage": "timing variants", "state": "to do", "takes": "about 10 to 40 s"}
    done = [{**row, "state": "done"} if row["step"] in ("cut", "measure") else row for row in forecasts]
    by_stage = {row["stage"]: row for row in stage_rows(plan, done)}
    assert by_stage["timing variants"]["state"] == "done"
    assert by_stage["pruning"]["state"] == "to do, 1 of 2 steps done"


def test_the_time_left_is_that_of_the_steps_to_do(rows, plan_of):
    plan: Plan = plan_of(rows(20))
    left = time_left([{"step": step.name, "least": 60.0, "most": 60.0} for step in plan.steps])
    assert left(plan.steps[:3], 30.0) == "about 2 min 30 s left"
    assert left(plan.steps[:3], 500.0) == "about 2 min left"
    rows_of_plan = [{"step": step.name, "least": 60.0, "most": 60.0} for step in plan.steps]
    later = [{"step": "of another run", "least": 90.0, "most": 90.0}]
    assert time_left(rows_of_plan, later)(plan.steps[:1], 30.0) == "about 2 min left"


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [
        (90.0, 90.0, "1 min 30 s"),
        (480.0, 1800.0, "8 to 30 min"),
        (20.0, 130.0, "1 to 2 min"),
        (0.2, 0.9, "1 s"),
        (5.0, 20.0, "5 to 20 s"),
        (5400.0, 21600.0, "1.5 to 6.0 h"),
    ],
)
def test_format_of_a_span(least, most, text):
    assert format_span(least, most) == text


def test_trainings_that_end_by_themselves_are_expected_to_end_before_the_most():
    bounds = Finetune(epochs={"least": 2, "most": 8})
    assert [expected_length(bounds, position).epochs for position in (0, 0.5, 1, 3)] == [2, 5, 8, 8]
    patient = Finetune(epochs=7, patience=2)
    assert expected_length(patient, 0.5).epochs == 4
    fixed = Finetune(epochs=7)
    assert expected_length(fixed, 0.5) is fixed


def test_the_most_is_said_apart(rows, plan_of, tmp_path):
    plan = plan_of(rows(20_000), "finetune={epochs: {least: 1, most: 9}}")
    out, err = StringIO(), StringIO()
    show_plan(plan, Options(runs=tmp_path / "runs"), Console(out=out, err=err))
    assert "; at most " in err.getvalue()
    assert "if trainings use all their epochs" in err.getvalue()


def test_earlier_trainings_decide_how_many_epochs_are_expected(rows, plan_of, tmp_path, monkeypatch):
    """By the rows that these read, of which more or fewer may have had labels: they had bounds of their own."""
    plan = plan_of(rows(2_000), "finetune={epochs: {least: 1, most: 9}}")
    earlier = [SimpleNamespace(kind="finetune")]
    training = SimpleNamespace(chosen={"epochs": SimpleNamespace(value=3.0)}, rows=186_000)
    monkeypatch.setattr(cost_estimates, "read_info", lambda folder: SimpleNamespace(training=training))
    monkeypatch.setattr(StepStore, "folder_of", lambda self, record: tmp_path)

    def described(records, plan=plan):
        monkeypatch.setattr(Estimates, "_records", records)
        return Estimates(plan, StepStore(tmp_path / "runs"), raw=raw_sample(plan.recipe.task)).describe_trainings(
            plan.teacher
        )

    assert described([]) == "3.7 of 1 to 9 epochs expected"
    assert described(earlier) == "3 of 1 to 9 epochs expected"
    by_rows = plan_of(rows(2_000), "finetune={}")
    assert described([], by_rows) == "5.5 of 3.2 to 10 epochs expected"
    assert described(earlier, by_rows) == "7.7 of 3.2 to 10 epochs expected"
