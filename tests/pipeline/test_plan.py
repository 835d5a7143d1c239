"""Plans of recipes, and of other lists of models than a recipe can name."""

from functools import partial
from pathlib import Path

import pytest

from compress.console import Console
from compress.pipeline.graph import Plan
from compress.pipeline.plan import default_models, make_plan
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import Options, execute, read_recipe
from compress.recipe.student_schema import Student
from compress.steps.distill_step import add_student
from compress.steps.finetune_step import add_teacher


def plan_two_students(recipe_file: Path, *overrides: str) -> Plan:
    """The tiny recipe with a second student instead of pruning."""
    recipe = resolve(read_recipe(recipe_file, ["prune=null", *overrides]))
    assert recipe.student is not None
    students = [
        partial(add_student, student=recipe.student, distill=recipe.distill),
        partial(add_student, student=Student(layers=2), distill=recipe.distill, name="deeper", step="distill-deeper"),
    ]
    return make_plan(recipe, models=[add_teacher, *students])


def test_models_of_a_recipe_follow_their_parents(recipe_file: Path) -> None:
    plan = make_plan(resolve(read_recipe(recipe_file)))
    assert [model.name for model in plan.evaluated] == ["teacher", "student", "pruned"]
    assert plan.teacher.parent is None
    names = [model.name for model in plan.models]
    assert all(model.parent is None or model.parent in names[:index] for index, model in enumerate(plan.models))
    assert len(default_models(plan.recipe)) >= 3


def test_two_students_get_the_same_steps_each(recipe_file: Path) -> None:
    plan = plan_two_students(recipe_file)
    assert [(model.name, model.parent) for model in plan.models] == [
        ("teacher", None),
        ("student", "teacher"),
        ("deeper", "teacher"),
    ]
    assert plan.step("distill-deeper").needs == plan.step("distill").needs
    steps = {model: [step.name for step in plan.steps if f"-{model}-" in step.name] for model in ("student", "deeper")}
    assert [name.replace("deeper", "student") for name in steps["deeper"]] == steps["student"]
    assert {entry.model for entry in plan.variants} == {"teacher", "student", "deeper"}
    assert {step.name for step in plan.matching("distill")} == {"distill", "distill-deeper"}


@pytest.mark.slow
def test_two_students_are_trained_and_reported(recipe_file: Path, tmp_path: Path) -> None:
    result = execute(plan_two_students(recipe_file), Options(runs=tmp_path / "runs"), Console("quiet"))
    result.raise_for_failures()
    assert result.report is not None
    status = {row.model: row.status for row in result.report.rows}
    assert status == dict.fromkeys(("teacher", "student", "deeper"), "ok")
    assert {model.name: model.parent for model in result.report.models} == {
        "teacher": None,
        "student": "teacher",
        "deeper": "teacher",
    }
    assert set(result.report.makings) == {"student", "deeper"}
    assert result.report.verdicts[0].winner is not None


OF_THE_RUN = {"package", "report", "publish"}
"""The steps that hold the recipe itself; everything before is shared by recipes."""


def steps_of(recipe: Path, *overrides: str) -> dict[str, str]:
    """The fingerprint of each step."""
    plan = make_plan(resolve(read_recipe(recipe, overrides)))
    return {step.name: step.fingerprint for step in plan.steps}


def changed_steps(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_the_gate_redoes_no_data_and_no_training(recipe_file: Path) -> None:
    automatic = "task.data.select_share=auto"
    before, after = (steps_of(recipe_file, automatic, f"gate.max_drop={drop}") for drop in (0.01, 0.5))
    assert changed_steps(before, after) == {"select", *OF_THE_RUN}


def test_recipes_of_other_names_share_every_step_that_is_not_about_the_run(recipe_file: Path) -> None:
    copy = recipe_file.with_name("cola.yaml")
    copy.write_text(recipe_file.read_text())
    titled = steps_of(recipe_file, "task.name=tickets")
    assert changed_steps(steps_of(recipe_file), steps_of(copy)) == OF_THE_RUN
    assert changed_steps(steps_of(recipe_file), titled) == OF_THE_RUN


def test_the_seed_of_trainings_redoes_no_split(recipe_file: Path) -> None:
    before = steps_of(recipe_file)
    seeded = changed_steps(before, steps_of(recipe_file, "seed=1"))
    assert "finetune" in seeded
    assert "data" not in seeded
    assert "data" in changed_steps(before, steps_of(recipe_file, "task.data.split_seed=1"))
