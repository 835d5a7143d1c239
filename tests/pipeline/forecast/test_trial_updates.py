import json
from pathlib import Path

import pytest

from compress.console import Console
from compress.environment import describe_cpu
from compress.pipeline.commands.plan_command import preview, shown_step
from compress.pipeline.forecast.cost_estimates import Estimates
from compress.pipeline.forecast.time_forecast import UPDATES
from compress.pipeline.forecast.trial_updates import calibrate
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_store import StepStore

PHASES = "prune.recover.phases=[{share: 0.75, hidden_state: 1.0}, {share: 0.25, soft_label: 1.0}]"


@pytest.fixture(scope="module", autouse=True)
def choices_are_kept_elsewhere(tmp_path_factory):
    """Precisions that were chosen for tiny models."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMPRESS_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    from tests.conftest import write_tiny_recipe

    folder = tmp_path_factory.mktemp("calibrated")
    options = Options(runs=folder / "runs")
    overrides = ["distill.max_steps=7", PHASES, "quantize.training={epochs: 2}"]
    plan = prepare(write_tiny_recipe(folder), overrides, options)
    return plan, options, calibrate(plan, options, Console("quiet"))


def test_every_training_is_tried_and_only_the_data_are_cached(calibrated):
    plan, options, trials = calibrated
    assert set(trials) == {model.step for model in plan.models if model.training}
    assert all(trial.seconds_per_operation > 0 for trial in trials.values())
    store = StepStore(options.root)
    assert [folder.name.split("-")[0] for folder in store.all_steps()] == ["data"]
    assert not list((store.steps / ".partial").glob("*"))


def test_precisions_are_tried_for_the_run_that_follows(calibrated, choices_are_kept_elsewhere):
    kept = [json.loads(file.read_text()) for file in (choices_are_kept_elsewhere / "precision").glob("*.json")]
    tried = [choice["key"]["objective"] for choice in kept if "6 of each precision tried" in choice["reason"]]
    expected = {"TaskObjective", "DistillObjective"} if describe_cpu().has_bf16 else set()
    assert set(tried) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "tried"),
    [
        (["student=null", "distill=null", "prune=null"], {"finetune"}),
        (["student=null", "distill=null", "prune={to: {speedup: 2}}"], {"finetune", "recover"}),  # as `compress init`
        (["prune={vocabulary: seen}"], {"finetune", "distill"}),
    ],
)
def test_sections_that_train_nothing_are_left_out(tmp_path, recipe_file, changes, tried):
    options = Options(runs=tmp_path / "runs")
    plan = prepare(recipe_file, changes, options)
    assert set(calibrate(plan, options, Console("quiet"))) == tried


def test_trials_take_precedence_over_earlier_runs(calibrated):
    plan, options, trials = calibrated
    rows = {row["step"]: row for row in preview(plan, options, trials)}
    assert rows["data"]["state"] == "done"
    for name in trials:
        assert rows[name]["basis"] == f"{UPDATES} updates tried just now"
        assert rows[name]["seconds"] > 0
        assert rows[name]["memory"] > rows[name]["disk"] > 0
    assert rows["report"]["memory"] is None
    assert shown_step(rows["report"])["memory"] == ""
    assert shown_step(rows["finetune"])["memory"].endswith("MB")


def test_estimates_follow_the_plan(calibrated):
    plan, options, _ = calibrated
    estimates = Estimates(plan, StepStore(options.root))
    student = plan.model("student")
    assert estimates.rows(student) == 152
    assert estimates.shape(student).layers == 1
    assert estimates.training(student).operations > 0
    trained = plan.model("qat")
    assert estimates.shape(trained) == estimates.shape(plan.model("pruned"))
    assert estimates.training(trained).operations > 0


def test_without_data_trainings_are_unknown(tmp_path: Path, recipe_file: Path):
    options = Options(runs=tmp_path / "runs")
    plan = prepare(recipe_file, [], options)
    assert Estimates(plan, StepStore(options.root)).training(plan.teacher) is None
    assert {row["basis"] for row in preview(plan, options)} == {"no earlier run here"}


def test_finished_run_forecasts_the_next_one_by_operations(finished_run):
    options = Options(runs=finished_run.parent / "runs")
    plan = prepare(finished_run.parent / "tiny.yaml", ["distill.epochs=6", "task.max_length=32"], options)
    row = next(row for row in preview(plan, options) if row["step"] == "distill")
    assert "operations at the rate of 1 earlier run here" in row["basis"]
    assert row["seconds"] > 0
