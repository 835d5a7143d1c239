"""The recipes of a search: the given one without what the search decides, the finalists' and the winner's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compress.console import Console
from compress.environment import usable_cores
from compress.errors import UsageError, nearest
from compress.model_shapes import shape_of_folder
from compress.model_sources import local_folder
from compress.recipe.measure_schema import Target
from compress.recipe.schema import Budget, Quantize, Recipe
from compress.recipe.student_schema import AND_THEN, AnyStudent, Cascade, LightStudent
from compress.steps.shared_step import SECTION
from compress.storage.file_names import name_with
from compress.tasks import KINDS

OF_FINALISTS = "-search"
"""After the recipe's name: the run of its finalists, beside a run of the recipe itself."""
OF_EVERY_DEPTH: Mapping[str, str] = {"layer_map": "uniform", "freeze": "null"}
"""Settings of a distillation that may name layers, and what they are where they name none."""
LIMITS = tuple(name for name in Budget.model_fields if name != "target")
GOALS: Mapping[str, str] = {"speed": "p50", "size": "size", "score": "score"}
"""What a winner is the first by, by goal: `rank_by` of the recipe."""


def budget_overrides(text: str, goal: str | None) -> list[str]:
    """Return `p50=0.5ms,size=5MB,drop=0.015` as overrides of a recipe, as `--set` takes them."""
    limits = dict[str, str]()
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = each.partition("=")
        if not equals or not value:
            raise UsageError(f"--budget: '{each}' is no limit.", hint="--budget p50=0.5ms,size=5MB,drop=0.015")
        if name not in (*LIMITS, "drop"):
            raise UsageError(f"--budget has no limit '{name}'{nearest(name, (*LIMITS, 'drop'))}")
        if name in limits:
            raise UsageError(f"--budget: {name} is given twice.")
        limits[name] = value
    drop = limits.pop("drop", None)
    if drop and not _is_number(drop):
        message = f"--budget: drop is what the score may lose, as a number, got '{drop}'."
        raise UsageError(message, hint="drop=0.02: 2 points of 100")
    overrides = [f"budget={{{', '.join(f'{name}: {value}' for name, value in limits.items())}}}"] if limits else []
    overrides += [f"gate.max_drop={drop}"] if drop else []
    if goal is not None and goal not in GOALS:
        raise UsageError(f"there is no goal '{goal}'{nearest(goal, GOALS)}")
    return [*overrides, *([f"rank_by={GOALS[goal]}"] if goal else [])]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def searched_recipe(recipe: Recipe, console: Console, cards: Sequence[Path] = ()) -> Recipe:
    """Return the recipe without what the search decides; refuse tasks and budgets that it cannot serve."""
    if not recipe.budget:
        raise UsageError("a search needs a budget.", hint="--budget p50=0.5ms,size=5MB, or the section budget")
    if not recipe.distill:
        raise UsageError("a search distils its candidates, and distill is off in this recipe.")
    for name, other in OF_EVERY_DEPTH.items():
        value = getattr(recipe.distill, name)
        if value and isinstance(value, int | tuple):  # freeze: 0 is the embeddings alone
            reason = f"distill.{name} is for students of some depth, and a search trains those of every depth."
            raise UsageError(reason, hint=f"--set distill.{name}={other}")
    teacher = shape_of_folder(local_folder(recipe.teacher.source, recipe.teacher.revision, cards))
    if teacher and not teacher.heads:
        raise UsageError(f"a search takes layers apart, and {recipe.teacher.source} has no attention.")
    changes: dict[str, Any] = {}
    if recipe.prune is not None and recipe.student is None:
        console.note("search: prune is left out: the search chooses heads and neurons")
        changes["prune"] = None
        if recipe.prune.vocabulary:
            changes[SECTION] = recipe.shared.model_copy(update={"vocabulary": recipe.prune.vocabulary})
    if recipe.parts:
        console.note("search: parts of the recipe's own are left out, and cascades of these: the search chooses them")
    if recipe.quantize is None:
        changes["quantize"] = Quantize()
    return recipe.model_copy(update=changes)


def timed_target(recipe: Recipe) -> Target:
    """Return the target at which parts are timed: the first on the CPU that the budget names, else the first."""
    named = {budget.target for budget in recipe.budget}
    here = [each for each in recipe.targets if each.device == "cpu" and each.threads <= usable_cores()]
    if not here:
        raise UsageError(
            f"a search times parts on the CPU, and no target is on it with {usable_cores()} threads or fewer.",
            hint="targets: [cpu]",
        )
    return next((each for each in here if each.title in named), here[0])


def light_students(recipe: Recipe) -> dict[str, LightStudent]:
    """Return the students without attention that compete, by their models' names: the recipe's, else one of each kind.

    These are the kinds that the task allows, with as many pieces as the shared student has.
    """
    kind = KINDS[recipe.task.kind]
    if recipe.light_students or kind.needs_attention:
        return recipe.light_students
    pieces = recipe.shared.vocabulary
    conv = {"conv": LightStudent(kind="conv", vocabulary=pieces)}
    return conv if kind.needs_order else {"static": LightStudent(kind="static", vocabulary=pieces), **conv}


def finalists_recipe(recipe: Recipe, parts: Sequence[AnyStudent], light: Sequence[AnyStudent]) -> Recipe:
    """Return the recipe of the finalists: with students without attention, and cascades of these and the best ones.

    The recipe's own cascades take the place of those, as far as their models are finalists.
    """
    students = (*([recipe.student] if recipe.student else []), *parts, *light)
    publish = recipe.publish and recipe.publish.model_copy(update={"name": recipe.publish.name or recipe.name})
    task = recipe.task.model_copy(update={"name": recipe.task_title})
    changes = {"name": name_with(recipe.name, OF_FINALISTS), "task": task, "students": students, "publish": publish}
    final = recipe.model_copy(update=changes)
    if recipe.cascade == "auto":
        return final
    left_out = {*recipe.parts, *light_students(recipe)} - {*final.parts, *final.light_students}
    own = tuple(each for each in recipe.cascade if left_out.isdisjoint(_models_of(each)))
    if own or KINDS[recipe.task.kind].no_certainty or not light:
        return final.model_copy(update={"cascade": own})
    seconds = (*([[*final.parts][-1]] if parts else []), "teacher")
    cascades = tuple(Cascade(first=name, then=then) for name in final.light_students for then in seconds)
    return final.model_copy(update={"cascade": cascades})


def recipe_of_row(recipe: Recipe, row: str, called: str = "winner") -> Recipe:
    """Return the recipe of the model of a row alone, every training of which is done; ``called`` ends its name.

    Further students without attention of its kind stay: they are called by their order. Pruning goes on from the
    recipe's own student, and stays with it.
    """
    model = row.partition("/")[0]
    changes: dict[str, Any] = {"name": name_with(recipe.name.removesuffix(OF_FINALISTS), f"-{called}")}
    if recipe.cascade == "auto" and AND_THEN in model:
        return recipe.model_copy(update=changes)
    cascades = () if recipe.cascade == "auto" else recipe.cascade
    cascades = tuple(each for each in cascades if each.model == model)
    names = {model}.union(*map(_models_of, cascades))
    kinds = {each.kind for name, each in recipe.light_students.items() if name in names}
    kept: list[AnyStudent] = [each for name, each in recipe.parts.items() if name in names]
    kept += [each for each in recipe.light_students.values() if each.kind in kinds]
    changes["cascade"] = cascades
    if recipe.student and not names & {*recipe.parts, *recipe.light_students}:
        return recipe.model_copy(update=changes | {"students": (recipe.student, *kept)})
    return recipe.model_copy(update=changes | {"students": tuple(kept), "prune": None})


def _models_of(cascade: Cascade) -> set[str]:
    return {name.partition("/")[0] for name in (cascade.first, cascade.then)}
