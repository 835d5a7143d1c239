"""How the sections of a recipe become models and steps."""

from pathlib import Path

import pytest

from compress.pipeline.run import Options, prepare
from tests.conftest import write_tiny_recipe


@pytest.fixture
def plan_of(tmp_path: Path):
    recipe = write_tiny_recipe(tmp_path)
    return lambda *overrides: prepare(recipe, overrides, Options(runs=tmp_path / "runs"))


def changed_steps(plan_of, override: str) -> set[str]:
    before = {step.name: step.fingerprint for step in plan_of().steps}
    return {step.name for step in plan_of(override).steps if before.get(step.name) != step.fingerprint}


def test_pruning_is_cut_and_recover(plan_of):
    plan = plan_of()
    assert [step.name for step in plan.steps][:5] == ["data", "finetune", "distill", "cut", "recover"]
    assert [(model.name, model.step) for model in plan.models if model.section == "prune"] == [
        ("pruned-cut", "cut"),
        ("pruned", "recover"),
    ]
    assert [model.name for model in plan.evaluated] == ["teacher", "student", "pruned"]
    assert plan.evaluated_parent("pruned").name == "student"
    assert [step.name for step in plan.matching("prune")] == ["cut", "recover"]


def test_without_recovery_the_cut_is_the_pruned_model(plan_of):
    plan = plan_of("prune.recover=false")
    assert plan.model("pruned").step == "cut"
    assert "recover" not in [step.name for step in plan.steps]


def test_recovery_settings_do_not_redo_the_cut(plan_of):
    changed = changed_steps(plan_of, "prune.recover.epochs=7")
    assert "recover" in changed
    assert not {"finetune", "distill", "cut", "score-student-onnx-fp32-cpu-b32"} & changed


@pytest.mark.parametrize("override", ["prune.ffn=0.25", "prune.batches=3", "distill.epochs=7"])
def test_other_settings_redo_cut_and_recovery(plan_of, override):
    assert {"cut", "recover"} <= changed_steps(plan_of, override)
