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


def test_vocabulary_is_pruned_last_and_changes_no_step_before(plan_of):
    assert not {"finetune", "distill", "cut", "recover"} & changed_steps(plan_of, "prune.vocabulary=seen")
    plan = plan_of("prune.vocabulary=seen")
    assert [model.name for model in plan.evaluated] == ["teacher", "student", "pruned", "trimmed"]
    assert plan.evaluated_parent("trimmed").name == "pruned"
    assert plan.step("vocabulary").needs == ("data", "recover")
    assert [step.name for step in plan.matching("prune")] == ["cut", "recover", "vocabulary"]
    assert plan.step("vocabulary").settings["longest"] == 32


def test_vocabulary_alone_cuts_nothing_else(plan_of):
    plan = plan_of("prune={vocabulary: {keep: 50}}", "targets=[{device: cpu, length: 48}, {device: cpu}]")
    assert [model.name for model in plan.evaluated] == ["teacher", "student", "trimmed"]
    assert plan.evaluated_parent("trimmed").name == "student"
    assert not {"cut", "recover"} & {step.name for step in plan.steps}
    assert [path for path, _ in plan.distillations] == [("distill",)]
    assert plan.step("vocabulary").settings["longest"] == 48


def test_unlabelled_texts_are_read_for_a_vocabulary_alone(plan_of, tmp_path):
    texts = f"task.data.unlabelled={tmp_path / 'test.csv'}"
    plan = plan_of("student=null", "distill=false", "prune={vocabulary: {min_count: 2}}", texts)
    assert plan.step("vocabulary").needs == ("data", "finetune", "unlabelled")


def test_several_cuts_have_recoveries_between_them(plan_of):
    plan = plan_of("prune.heads=0.5", "prune.ffn=0.3", "prune.cuts=3")
    assert [step.name for step in plan.steps][3:9] == ["cut-1", "recover-1", "cut-2", "recover-2", "cut", "recover"]
    assert [model.name for model in plan.evaluated] == ["teacher", "student", "pruned"]
    assert plan.model("pruned-2-cut").parent == "pruned-1"
    assert plan.evaluated_parent("pruned").name == "student"
    assert len(plan.matching("prune")) == 6
    assert [plan.step(name).run.keywords["is_later"] for name in ("cut-1", "cut-2", "cut")] == [False, True, True]
    heads, ffn = 1.0, 1.0
    for name in ("pruned-1-cut", "pruned-2-cut", "pruned-cut"):
        stage = plan.model(name).shape
        heads, ffn = heads * (1 - stage.heads), ffn * (1 - stage.ffn)
    assert (heads, ffn) == pytest.approx((0.5, 0.7))


def test_several_cuts_to_a_share_of_parameters(plan_of):
    plan = plan_of("prune.heads=0", "prune.ffn=0", "prune.to.parameters=0.25", "prune.cuts=2")
    shares = [plan.model(name).shape.to.parameters for name in ("pruned-1-cut", "pruned-cut")]
    assert shares == pytest.approx([0.625, 0.4])


def test_keys_at_their_defaults_do_not_redo_a_cut(plan_of):
    assert not {"cut", "recover"} & changed_steps(plan_of, "prune.cuts=1")
    assert not {"cut", "recover"} & changed_steps(plan_of, "prune.rescale=null")
    assert {"cut", "recover"} <= changed_steps(plan_of, "prune.rescale=true")
    settings = plan_of().step("cut").settings["prune"]
    assert set(settings) == {"heads", "ffn", "to", "criterion", "batches", "round_to", "even"}


def test_factors_are_made_anew_by_versions_that_weight_them(plan_of):
    assert "factors_by" not in plan_of().step("distill").settings["student"]
    assert plan_of("student.factors=8").step("distill").settings["student"]["factors_by"] == "piece counts"


def test_student_with_a_vocabulary_of_its_own_gets_it_before_it_is_distilled(plan_of, tmp_path):
    plan = plan_of("student.vocabulary={keep: 100}", f"task.data.unlabelled={tmp_path / 'test.csv'}")
    names = [step.name for step in plan.steps]
    assert names[:8] == [
        *("data", "unlabelled", "finetune", "build-student", "student-vocabulary", "distill", "cut", "recover"),
    ]
    assert plan.step("student-vocabulary").needs == ("data", "build-student", "unlabelled")
    assert plan.step("student-vocabulary").settings["longest"] is None
    assert plan.step("distill").needs == ("data", "finetune", "student-vocabulary", "unlabelled")
    assert [model.name for model in plan.evaluated] == ["teacher", "student", "pruned"]
    assert plan.evaluated_parent("student").name == "teacher"
    assert len(plan.matching("distill")) == 3
    assert "student-vocabulary" not in [step.name for step in plan.matching("prune")]


def test_untrained_student_with_a_vocabulary_of_its_own(plan_of):
    plan = plan_of("student={vocabulary: seen}", "distill=false", "prune=null")
    assert plan.model("student").step == "student-vocabulary"
    assert [model.name for model in plan.evaluated] == ["teacher", "student"]


def test_vocabulary_of_a_student_that_has_none_changes_no_step(plan_of):
    assert not changed_steps(plan_of, "student.vocabulary=null")
    assert "vocabulary" not in plan_of().step("distill").settings["student"]
    changed = changed_steps(plan_of, "student.vocabulary=seen")
    assert {"distill", "cut", "recover"} <= changed
    assert "finetune" not in changed


def test_quantization_aware_training_is_last_and_learns_from_its_parent(plan_of):
    assert not {"finetune", "distill", "cut", "recover"} & changed_steps(plan_of, "quantize.training=true")
    plan = plan_of("quantize.training=true", "prune.vocabulary=seen")
    assert [model.name for model in plan.evaluated] == ["teacher", "student", "pruned", "trimmed", "qat"]
    model = plan.model("qat")
    assert (model.parent, model.teacher, model.section) == ("trimmed", "trimmed", "quantize")
    assert plan.step("qat").needs == ("data", "vocabulary")
    assert "qat" in [step.name for step in plan.matching("quantize")]
    assert [path for path, _ in plan.distillations][-1] == ("quantize", "training")


def test_quantization_aware_training_of_the_teacher_itself(plan_of, tmp_path):
    texts = f"task.data.unlabelled={tmp_path / 'test.csv'}"
    plan = plan_of("student=null", "distill=false", "prune=null", "quantize.training={epochs: 2}", texts)
    assert (plan.model("qat").parent, plan.model("qat").training.epochs) == ("teacher", 2.0)
    assert plan.step("qat").needs == ("data", "finetune", "unlabelled")


def test_settings_of_quantization_aware_training_change_no_other_model(plan_of):
    before, after = plan_of("quantize.training=true"), plan_of("quantize.training={epochs: 7}")
    models = {model.step for model in before.models}
    assert {name for name in models if before.step(name).fingerprint != after.step(name).fingerprint} == {"qat"}
