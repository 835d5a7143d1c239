from pathlib import Path

import pytest

from compress.console import Console
from compress.model_info import read_info
from compress.pipeline.commands.plan_command import preview, shown_step
from compress.pipeline.forecast.cost_estimates import Estimates
from compress.pipeline.forecast.trial_updates import UPDATES, calibrate
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_store import StepStore

PHASES = "prune.recover.phases=[{share: 0.75, hidden_state: 1.0}, {share: 0.25, soft_label: 1.0}]"


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    from tests.conftest import write_tiny_recipe

    folder = tmp_path_factory.mktemp("calibrated")
    options = Options(runs=folder / "runs")
    plan = prepare(write_tiny_recipe(folder), ["distill.max_steps=7", PHASES], options)
    return plan, options, calibrate(plan, options, Console("quiet"))


def test_every_training_is_tried_and_only_the_data_stand(tried):
    _, options, found = tried
    assert set(found) == {"finetune", "distill", "prune"}
    assert all(each.rates.operation > 0 or each.rates.update > 0 for each in found.values())
    store = StepStore(options.root)
    assert [folder.name.split("-")[0] for folder in store.all_steps()] == ["data"]
    assert not list((store.steps / ".partial").glob("*"))


def test_every_phase_is_tried_and_weighed_by_its_share(tried):
    plan, options, found = tried
    assert {kind: len(each.rates.phases) for kind, each in found.items()} == {"finetune": 0, "distill": 0, "prune": 2}
    assert Estimates(plan, StepStore(options.root)).expected("prune").work.phases == (0.75, 0.25)


def test_what_was_tried_comes_before_what_is_known(tried):
    plan, options, found = tried
    rows = {row["step"]: row for row in preview(plan, options, found)}
    assert rows["data"]["state"] == "stands"
    for name in ("finetune", "distill", "prune"):
        of_each = " of each phase" if name == "prune" else ""
        assert rows[name]["basis"] == f"{2 * UPDATES} updates{of_each} tried just now"
        assert rows[name]["seconds"] > 0
        assert rows[name]["memory"] > rows[name]["disk"] > 0
    assert rows["report"]["memory"] is None
    assert shown_step(rows["report"])["memory"] == ""
    assert shown_step(rows["finetune"])["memory"].endswith("MB")


def test_the_work_is_that_of_the_whole_training(tried):
    plan, options, _ = tried
    expected = Estimates(plan, StepStore(options.root)).expected("distill")
    assert sum(expected.work.updates) == 7
    assert expected.work.student.layers == 1
    assert len(expected.work.lengths) == 152
    assert expected.select_rows == 8


def test_without_data_nothing_is_known_of_a_training(tmp_path: Path, recipe_file: Path):
    options = Options(runs=tmp_path / "runs")
    plan = prepare(recipe_file, [], options)
    assert Estimates(plan, StepStore(options.root)).expected("finetune") is None
    assert {row["basis"] for row in preview(plan, options)} == {"no earlier run here"}


def test_a_finished_run_forecasts_the_next_one_by_operations(finished_run):
    options = Options(runs=finished_run.parent / "runs")
    plan = prepare(finished_run.parent / "tiny.yaml", ["distill.epochs=6", "task.max_length=32"], options)
    row = next(row for row in preview(plan, options) if row["step"] == "distill")
    assert "word pieces at the rate of 1 earlier run here" in row["basis"]
    assert row["seconds"] > 0
    record = StepStore(options.root).record("finetune", plan.step("finetune").fingerprint)
    assert record.rates["trained"] > 0
    assert (
        record.rates["parameters"]
        == read_info(StepStore(options.root).folder("finetune", record.fingerprint)).shape.parameters
    )
