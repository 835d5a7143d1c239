"""Settings without effect, and names that lead to no model, are reported with their keys."""

import pytest

from compress.errors import RecipeError
from compress.pipeline.run import read_recipe
from compress.recipe.load import dump_recipe


def errors(recipe_file, *overrides):
    with pytest.raises(RecipeError) as error:
        read_recipe(recipe_file, overrides)
    return [f"{'.'.join(map(str, problem.path))}: {problem.message}" for problem in error.value.problems]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "distill={soft_label: 1, layer_map: last}",
            "distill.layer_map: has no effect without a loss that compares map",
        ),
        ("prune.recover={soft_label: 1, layer_map: [[0, 1]]}", "prune.recover.layer_map: has no effect"),
        ("distill={soft_label: {form: mse}, temperature: 2}", "distill.temperature: has no effect here"),
        ("distill={hidden_state: 1, temperature: 2}", "distill.temperature: has no effect here"),
        ("distill={class_weights: balanced, hard_label: 0}", "distill.class_weights: has no effect without hard_label"),
        ("distill={hidden_state: 1, teachers: [minilm-l6]}", "distill.teachers: has no effect without soft_label"),
        (
            "distill={soft_label: 0, hard_label: 1, augment: {model: minilm-l6}}",
            "distill.augment: has no effect with hard_label alone",
        ),
        ("student={layers: 1, pooling: cls}", "student.pooling: is of a checkpoint (source)"),
        ("student=[static, {layers: 1, revision: v2}]", "student.1.revision: is of a checkpoint (source)"),
        ("prune={vocabulary: seen, criterion: kwon}", "prune.criterion: has no effect: word pieces alone are removed"),
        ("prune={vocabulary: seen, recover: {epochs: 3}}", "prune.recover: has no effect: word pieces alone"),
    ],
)
def test_settings_without_effect(override, message, recipe_file):
    (error,) = errors(recipe_file, override)
    assert error.startswith(message)


@pytest.mark.parametrize(
    "override",
    [
        "distill={phases: [{share: 0.5, attention: 1}, {share: 0.5, soft_label: 1}], layer_map: last, temperature: 2}",
        "distill={soft_label: {weight: {start: 0, end: 1}}, temperature: 2}",
        "distill={soft_label: 1}",
        "distill={class_weights: balanced, phases: [{share: 0.5, attention: 1}, {share: 0.5, hard_label: 1}]}",
        "prune={vocabulary: seen, recover: false}",
        "student=null",
    ],
)
def test_settings_used_in_some_phase_and_defaults_are_valid(override, recipe_file, tmp_path):
    recipe = read_recipe(recipe_file, [override])
    (tmp_path / "long.yaml").write_text(dump_recipe(recipe))
    assert read_recipe(tmp_path / "long.yaml") == recipe


@pytest.mark.parametrize(("key", "value"), [("form", "mse"), ("temperature", 2.0)])
def test_forms_of_soft_labels_need_probabilities(key, value, recipe_file):
    overrides = ["task.kind=regression", f"prune.recover={{soft_label: {{{key}: {value}}}}}"]
    (error,) = errors(recipe_file, *overrides)
    assert error.startswith(f"prune.recover.soft_label.{key}: ")
    assert "has no effect for regression" in error


@pytest.mark.parametrize("key", ["teacher", "student", "distill.teachers.0", "distill.augment.model"])
def test_names_that_lead_to_no_model(key, recipe_file, tmp_path):
    where = key.removesuffix(".0")
    (tmp_path / "empty").mkdir()
    for source, message in (
        ("train.csv", "there is no folder"),
        ("none", "there is no folder"),
        ("empty", "is no model folder: it has no config.json"),
        ("runs/.steps", "there is no folder"),
    ):
        (error,) = errors(recipe_file, f"{where}={tmp_path / source}")
        assert error.startswith(f"{key}: ")
        assert message in error


def test_all_names_at_once_and_folders_have_no_revision(recipe_file, tmp_path):
    result = errors(
        recipe_file,
        "teacher.revision=abc",
        "distill={soft_label: 1, cross_encoder: nowhere}",
        f"prune.recover.teachers={{source: {tmp_path / 'teacher'}, revision: abc}}",
        "student=./nowhere",
    )
    assert [error.partition(":")[0] for error in result] == [
        "teacher.revision",
        "student",
        "prune.recover.teachers.0.revision",
        "distill.cross_encoder",
    ]


@pytest.mark.parametrize("section", ["finetune", "distill", "prune.recover", "quantize.training"])
def test_class_weights_are_for_classes_of_rows(section, recipe_file):
    override = f"{section}.class_weights=balanced"
    training = read_recipe(recipe_file, [override])
    for key in section.split("."):
        training = getattr(training, key)
    assert training.class_weights == "balanced"
    (error,) = errors(recipe_file, override, "task.kind=regression", "task.labels=null")
    message = f"{section}.class_weights: has no effect for regression; it is for classification, multi_label"
    assert error.startswith(message)


@pytest.mark.parametrize("export", ["web", "ort", "litert", "{format: ort, compete: true}"])
def test_int8_needs_a_format_that_competes(export, recipe_file):
    message = "quantize: has no effect: no format that competes has a method for INT8; add onnx to export"
    (error,) = errors(recipe_file, "quantize=int8", f"export=[{export}]")
    assert error.startswith(message)


def test_training_for_int8_needs_the_method_that_it_imitates(recipe_file):
    (error,) = errors(recipe_file, "quantize={methods: [static-minmax], training: true}")
    assert error.startswith(
        "quantize.training: imitates the method dynamic, and methods are static-minmax; add dynamic"
    )
    assert read_recipe(recipe_file, ["quantize={methods: [static-minmax, dynamic], training: true}"])


def test_tags_have_no_text_that_may_change(recipe_file):
    kind = ["task.kind=token_classification", "task.text=tokens", "task.label=tags", "cascade=null"]
    found = errors(recipe_file, *kind, "measure.robustness=[typos]")
    assert any(
        each.startswith("measure.robustness: token_classification has no text that could change") for each in found
    )


@pytest.mark.parametrize(
    ("key", "metric", "end"),
    [
        ("gate.max_drop", "accuracy", "; 1.5 of 100 is 0.015"),
        ("quantize.max_drop", "accuracy", "; 1.5 of 100 is 0.015"),
        ("gate.max_class_drop", "recall", "; 1.5 of 100 is 0.015"),
    ],
)
def test_a_gate_in_points_of_100_is_refused(key, metric, end, recipe_file):
    (error,) = errors(recipe_file, f"{key}=1.5")
    assert error == f"{key}: 1.5 is more than {metric} itself, which is at most 1{end} (given on the command line)"
    (error,) = errors(recipe_file, f"{key}=150")
    assert error.endswith("which is at most 1 (given on the command line)")
    assert read_recipe(recipe_file, [f"{key}=1"])


def test_an_error_may_rise_by_more_than_1(recipe_file):
    assert read_recipe(recipe_file, ["task.kind=regression", "task.metric=mse", "gate.max_drop=5"]).gate.max_drop == 5


def test_limits_of_what_is_not_measured_are_refused(recipe_file):
    (error,) = errors(recipe_file, "budget={memory: 100MB}", "measure.memory=[8]")
    assert error.startswith("budget.memory: is that of serving one by one; add 1 to measure.memory")
    targets = "targets=[{device: cpu, length: 32, name: short}, {device: cpu, name: texts}]"
    (error,) = errors(recipe_file, targets, "budget={end_to_end: 1ms}")
    assert error.startswith("budget.end_to_end: short times pieces of a fixed length, not texts")
    (error,) = errors(recipe_file, targets, "rank_by=end_to_end")
    assert error.startswith("rank_by: short times pieces")
    read_recipe(recipe_file, [targets, "budget={end_to_end: 1ms, target: texts}"])
    read_recipe(recipe_file, ["budget={memory: 100MB}", "measure.memory=[1, 8]"])
