"""Times before the first run: from the files' rows, the shape of the models and a rate that is measured in a moment."""

import csv
import gzip
from io import StringIO
from types import SimpleNamespace

import pytest

from compress.console import Console
from compress.pipeline.commands.plan_command import preview, show_plan, stage_rows
from compress.pipeline.forecast import cost_estimates, rough_times, step_forecasts
from compress.pipeline.forecast.cost_estimates import Estimates
from compress.pipeline.forecast.raw_sample import ASSUMED_ROWS, raw_sample
from compress.pipeline.forecast.rough_times import RoughTimes, matrix_rate
from compress.pipeline.forecast.step_forecasts import format_span, time_left
from compress.pipeline.graph import Plan
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_store import StepStore
from compress.recipe.finetune_schema import Finetune
from compress.train.training_costs import expected_length


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
    assert sample.counts["train"] == pytest.approx(200, rel=0.01)
    assert 20 <= sample.lengths.mean() <= 30  # tokens of 20 words
    assert sample.counts["select"] > 0
    assert sample.text.endswith(" rows")
    limited = task.model_copy(update={"data": task.data.model_copy(update={"limit": 50})})
    assert raw_sample(limited).counts["train"] == 50


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
    assert slow - rough_times.START == pytest.approx(100 * (fast - rough_times.START))


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
    assert left(plan.steps[:1], 500.0) == ""


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
    plan = plan_of(rows(2_000), "finetune={epochs: {least: 1, most: 9}}")
    earlier = [SimpleNamespace(kind="finetune", inputs={"data": SimpleNamespace(fingerprint="f")})]
    training = SimpleNamespace(chosen={"epochs": SimpleNamespace(value=3.0)})
    monkeypatch.setattr(cost_estimates, "read_info", lambda folder: SimpleNamespace(training=training))
    prepared = SimpleNamespace(info=SimpleNamespace(counts={"train": 500}))
    monkeypatch.setattr(cost_estimates, "load_prepared", lambda folder: prepared)
    monkeypatch.setattr(StepStore, "folder_of", lambda self, record: tmp_path)

    def described(records):
        monkeypatch.setattr(Estimates, "_records", records)
        return Estimates(plan, StepStore(tmp_path / "runs"), raw=raw_sample(plan.recipe.task)).describe_trainings(
            plan.teacher
        )

    assert described([]) == "3.7 of 1 to 9 epochs expected"
    assert described(earlier) == "3 of 1 to 9 epochs expected"
