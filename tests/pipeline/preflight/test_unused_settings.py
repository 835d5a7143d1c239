"""Settings that nothing would read, and names that lead to no model, are told with their keys."""

import pytest

from compress.errors import RecipeError
from compress.pipeline.run import read_recipe
from compress.recipe.load import dump_recipe


def faults(recipe_file, *overrides):
    with pytest.raises(RecipeError) as error:
        read_recipe(recipe_file, overrides)
    return [f"{'.'.join(map(str, problem.path))}: {problem.message}" for problem in error.value.problems]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (
            "distill={soft_label: 1, layer_map: last}",
            "distill.layer_map: does nothing without a loss that compares map",
        ),
        ("prune.recover={soft_label: 1, layer_map: [[0, 1]]}", "prune.recover.layer_map: does nothing"),
        ("distill={soft_label: {form: mse}, temperature: 2}", "distill.temperature: does nothing here"),
        ("distill={hidden_state: 1, temperature: 2}", "distill.temperature: does nothing here"),
    ],
)
def test_settings_that_no_loss_reads(override, told, recipe_file):
    (fault,) = faults(recipe_file, override)
    assert fault.startswith(told)


@pytest.mark.parametrize(
    "override",
    [
        "distill={phases: [{share: 0.5, attention: 1}, {share: 0.5, soft_label: 1}], layer_map: last, temperature: 2}",
        "distill={soft_label: {weight: {start: 0, end: 1}}, temperature: 2}",
        "distill={soft_label: 1}",
        "student=null",
    ],
)
def test_what_some_phase_reads_and_what_nobody_set_is_fine(override, recipe_file, tmp_path):
    recipe = read_recipe(recipe_file, [override])
    (tmp_path / "long.yaml").write_text(dump_recipe(recipe))
    assert read_recipe(tmp_path / "long.yaml") == recipe


@pytest.mark.parametrize(("key", "value"), [("form", "mse"), ("temperature", 2.0)])
def test_forms_are_for_answers_that_are_chances(key, value, recipe_file):
    overrides = ["task.kind=regression", f"prune.recover={{soft_label: {{{key}: {value}}}}}"]
    (fault,) = faults(recipe_file, *overrides)
    assert fault.startswith(f"prune.recover.soft_label.{key}: ")
    assert "does nothing for regression" in fault


@pytest.mark.parametrize("key", ["teacher", "student", "distill.teachers.0", "distill.augment.model"])
def test_names_that_lead_to_no_model(key, recipe_file, tmp_path):
    where = key.removesuffix(".0")
    (tmp_path / "empty").mkdir()
    for source, told in (
        ("train.csv", "is a file; expected a model folder"),
        ("none", "there is no folder"),
        ("empty", "is no model folder: it has no config.json"),
        ("runs/.steps", "there is no folder"),
    ):
        (fault,) = faults(recipe_file, f"{where}={tmp_path / source}")
        assert fault.startswith(f"{key}: ")
        assert told in fault


def test_all_names_are_told_at_once_and_folders_have_no_revision(recipe_file, tmp_path):
    found = faults(
        recipe_file,
        "teacher.revision=abc",
        "distill={soft_label: 1, cross_encoder: nowhere}",
        f"prune.recover.teachers={{source: {tmp_path / 'teacher'}, revision: abc}}",
        "student=./nowhere",
    )
    assert [fault.partition(":")[0] for fault in found] == [
        "teacher.revision",
        "student",
        "prune.recover.teachers.0.revision",
        "distill.cross_encoder",
    ]
