"""The table of model steps is the only place that tells them apart."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from compress.pipeline.graph import Plan
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import LightStudent, Part
from compress.recipe.training_schema import Training
from compress.steps import KINDS, STEPS, distillations, map_trainings, steps_of, trainings
from compress.steps.model_step import settings_at
from tests.compared_words import compared_words

SOURCE = Path(__file__).parents[2] / "compress"
NAMES = {*STEPS, *KINDS} - {"quantize"}
"""Of model steps and their kinds of steps; `quantize` is also what makes a variant."""
TYPES = {"Prune", "Recover", "QuantizationAware", "Student", "VocabularyRule"}
"""Settings of one model step alone; trainings and distillations are told apart where they are trained."""
OTHER_MEANINGS = {
    "data": {"cut"},  # texts
    "losses": {"cut"},
    "tasks": {"cut"},
    "pretrain": {"vocabulary", "distill"},  # recipes of their own
    "pipeline/commands/pretrain_run.py": {"vocabulary"},
    "train/core/auto_settings.py": {"finetune", "distill", "recover", "light"},  # purposes of trainings
    "train/distill.py": {"vocabulary"},  # what compress.json records
    "search": {"part", "vocabulary", "prune"},  # what a search chooses among, and keys of recipes that it sets
    "report/pages/render.py": {"vocabulary"},  # a table of the page
}
"""By folder or file, words that name no model step there."""

RECIPE = {
    "name": "films",
    "task": {"name": "films", "kind": "classification", "data": {"train": "a.csv", "test": "b.csv"}},
    "teacher": "t",
    "student": "half-depth",
    "prune": {"heads": 0.5, "vocabulary": "seen"},
    "quantize": {"training": True},
}


def told_apart(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the lines and words of comparisons with names, of keys of tables by name, and of checks of a type."""
    yield from ((line, word) for line, word in compared_words(tree) if word in NAMES)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            names = (each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name))
            yield from ((node.lineno, name) for name in names if name in TYPES)


def allowed(path: str) -> set[str]:
    return {word for place, words in OTHER_MEANINGS.items() if path.startswith(place) for word in words}


def test_no_other_code_tells_model_steps_apart():
    others = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in ("steps", "recipe")]
    places = [
        f"{path.relative_to(SOURCE)}:{line} {word}"
        for path in others
        for line, word in told_apart(ast.parse(path.read_text(encoding="utf-8")))
        if word not in allowed(path.relative_to(SOURCE).as_posix())
    ]
    assert len(others) > 200
    assert places == []


@pytest.mark.parametrize(
    "code",
    [
        'step.kind == "cut"',
        'name in ("vocabulary", "qat")',
        'section != "prune"',
        'LIBRARIES = {"finetune": "torch"}',
        "isinstance(model.shape, Prune)",
        "isinstance(shape, (Student, int))",
    ],
)
def test_what_the_check_finds(code):
    assert list(told_apart(ast.parse(code)))


def test_every_kind_of_step_belongs_to_one_model_step():
    assert len(KINDS) == sum(len(step.kinds) for step in STEPS.values())


@pytest.fixture
def recipe() -> Recipe:
    return Recipe.model_validate(RECIPE)


def test_every_record_names_keys_of_a_recipe(recipe):
    students = [*recipe.students, LightStudent(kind="static"), Part(layers=1, heads=1, ffn=8)]
    recipe = recipe.model_copy(update={"students": tuple(students)})
    assert [*steps_of(recipe)] == [*STEPS.values()]
    for step in STEPS.values():
        assert settings_at(recipe, step.path) is not None
        assert not step.training or isinstance(settings_at(recipe, step.training), Training)


def test_trainings_are_those_in_effect(recipe):
    paths = [("finetune",), ("distill",), ("prune", "recover"), ("quantize", "training")]
    assert [path for path, _ in trainings(recipe)] == paths
    assert [path for path, _ in distillations(recipe)] == paths[1:]
    changed = recipe.model_copy(update={"students": (), "prune": recipe.prune.model_copy(update={"heads": 0.0})})
    assert [path for path, _ in trainings(changed)] == [paths[0], paths[3]]
    assert Plan(changed).distillations == [*distillations(changed)]


def test_a_change_of_every_training_leaves_the_rest(recipe):
    changed = map_trainings(recipe, lambda training: training.model_copy(update={"epochs": 7.0}))
    assert {training.epochs for _, training in trainings(changed)} == {7.0}
    assert changed.prune.heads == 0.5
    assert map_trainings(recipe, lambda training: training) == recipe
