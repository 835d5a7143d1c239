"""The recipes of a search: the given one without what the search decides, the finalists' and the winner's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compress.console import Console
from compress.data.tokenizer_subset import keepable_pieces
from compress.environment import usable_cores
from compress.errors import ModelError, UsageError, nearest
from compress.families import family_named
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import part_shape, parts_of, shape_of_folder, student_shape
from compress.model_sources import local_folder
from compress.recipe.measure_schema import Target
from compress.recipe.schema import Budget, Quantize, Recipe
from compress.recipe.student_schema import AnyStudent, Cascade, LightStudent, Shared, Vocabulary, VocabularyRule
from compress.runtime.model_formats import COMPANIONS
from compress.search.candidates import MARGIN, PIECE_BITS, file_bytes, most_bytes
from compress.steps.shared_step import SECTION, whole_student
from compress.tasks import KINDS

OF_FINALISTS = "-search"
"""After the recipe's name: the run of its finalists, beside a run of the recipe itself."""
FP32_BYTES = 4
FACTORS = 3
"""How many times fewer numbers than the hidden size a word vector has where it is stored in factors."""
FEWEST = 1.5
"""Times as many pieces as any text may need: below that too few are left beside the single characters."""
LIMITS = tuple(name for name in Budget.model_fields if name != "target")
TIMES = ("p50", "p95", "end_to_end", "speedup")
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
    kind = KINDS[recipe.task.kind]
    if kind.searches:
        reason = "parts are compared on rows of train, for which there are no documents to search"
        raise UsageError(f"a search cannot serve {recipe.task.kind}: {reason}.")
    if not recipe.budget:
        raise UsageError("a search needs a budget.", hint="--budget p50=0.5ms,size=5MB, or the section budget")
    if not recipe.distill:
        raise UsageError("a search distils its candidates, and distill is off in this recipe.")
    changes: dict[str, Any] = {}
    shared = recipe.shared
    if recipe.prune is not None and recipe.student is None:
        console.note("search: prune is left out: the search chooses heads and neurons")
        changes["prune"] = None
        if recipe.prune.vocabulary:
            shared = shared.model_copy(update={"vocabulary": recipe.prune.vocabulary})
    if recipe.quantize is None:
        changes["quantize"] = Quantize()
    changes[SECTION] = shared
    changes[SECTION] = _within_size(recipe.model_copy(update=changes), console, cards)
    return recipe.model_copy(update=changes)


def _within_size(recipe: Recipe, console: Console, cards: Sequence[Path]) -> Shared:
    """Return the shared student with smaller word vectors where most parts weigh too much with the teacher's.

    Vectors in factors come first: they keep every word. Then pieces go. What the recipe gives of both stays.
    """
    shared, needs = recipe.shared, ", as the budget's size needs"
    folder = local_folder(recipe.teacher.source, recipe.teacher.revision, cards)
    teacher = shape_of_folder(folder)
    if folder is None or teacher is None or shared.vocabulary or _sizes(recipe, teacher, folder).middle_fits:
        return shared
    has_own_size = teacher.embedding_size is not None or family_named(teacher.family).own_embedding_size
    if not has_own_size and "factors" not in shared.model_fields_set:
        shared = shared.model_copy(update={"factors": teacher.hidden // FACTORS})
        console.note(f"search: word vectors of parts are products of {shared.factors} factors{needs}")
    sizes = _sizes(recipe.model_copy(update={SECTION: shared}), teacher, folder)
    if "vocabulary" in shared.model_fields_set or sizes.middle_fits:
        return shared
    if pieces := _pieces_that_fit(recipe, sizes, folder):
        which = "only those of your texts" if pieces == "seen" else f"the {pieces.keep:,} most frequent ones"
        console.note(f"search: of all word pieces parts keep {which}{needs}")
        shared = shared.model_copy(update={"vocabulary": pieces})
    return shared


class _Sizes(NamedTuple):
    """Bytes of parts with all pieces of the teacher, without their tokenizer."""

    parts: Sequence[int]
    """From small to large."""
    vectors: float
    """Of these the word vectors."""
    others: int
    """Of the tokenizer."""
    most: float
    """What the budget allows."""

    @property
    def middle_fits(self) -> bool:
        """Whether half of the parts may be within the budget."""
        return self.parts[len(self.parts) // 2] + self.others <= MARGIN * self.most


def _sizes(recipe: Recipe, teacher: ShapeInfo, folder: Path) -> _Sizes:
    whole, others = whole_student(recipe.shared), tokenizer_bytes(folder)
    shared = student_shape(teacher, whole) if whole else teacher
    parts = sorted(file_bytes(part_shape(shared, part)) for part in parts_of(shared))
    most = most_bytes(recipe.budget, FP32_BYTES * teacher.parameters + others)
    return _Sizes(parts, shared.embedding_parameters * PIECE_BITS / 8, others, most)


def _pieces_that_fit(recipe: Recipe, sizes: _Sizes, folder: Path) -> Vocabulary | None:
    """Return which of the teacher's pieces parts keep: as many, the most frequent, as the budget's size has room for.

    That is in the middle part, or, beside a limit of time, which few large parts keep, in one that a quarter are
    smaller than. They are more than the texts have where train is small: a word that none of them has stays whole.
    None where pieces cannot be removed.
    """
    try:
        table = keepable_pieces(folder)
    except ModelError:
        return None
    if table is None or (recipe.student and recipe.student.source):
        return "seen"
    part = sizes.parts[len(sizes.parts) // (4 if limits_time(recipe.budget) else 2)]
    kept = int((sizes.most - (part - sizes.vectors)) / ((sizes.vectors + sizes.others) / table.all))
    if kept >= table.most:
        return None
    return VocabularyRule(keep=kept) if kept >= FEWEST * table.least else "seen"


def teacher_bytes(recipe: Recipe, cards: Sequence[Path]) -> int | None:
    """Return the size of the teacher's files, with 32 bits a parameter; None where its shape is not known yet."""
    folder = local_folder(recipe.teacher.source, recipe.teacher.revision, cards)
    shape = shape_of_folder(folder)
    return FP32_BYTES * shape.parameters + tokenizer_bytes(folder) if shape else None


def tokenizer_bytes(folder: Path | None) -> int:
    """Return the size of a folder's tokenizer and config, which every export of its model has too."""
    files = [folder / name for name in COMPANIONS] if folder else []
    return sum(file.stat().st_size for file in files if file.is_file())


def limits_time(budgets: Sequence[Budget]) -> bool:
    """Whether any of these limits a time."""
    return any(getattr(each, name) is not None for each in budgets for name in TIMES)


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

    These are the kinds that the task allows, with as many pieces as parts have.
    """
    kind = KINDS[recipe.task.kind]
    if recipe.light_students or kind.needs_attention:
        return recipe.light_students
    pieces = recipe.shared.vocabulary
    conv = {"conv": LightStudent(kind="conv", vocabulary=pieces)}
    return conv if kind.needs_order else {"static": LightStudent(kind="static", vocabulary=pieces), **conv}


def finalists_recipe(recipe: Recipe, parts: Sequence[AnyStudent], light: Sequence[AnyStudent]) -> Recipe:
    """Return the recipe of the finalists: with students without attention, and cascades of these and the best ones."""
    students = (*([recipe.student] if recipe.student else []), *parts, *light)
    publish = recipe.publish and recipe.publish.model_copy(update={"name": recipe.publish.name or recipe.name})
    task = recipe.task.model_copy(update={"name": recipe.task_title})
    changes = {"name": f"{recipe.name}{OF_FINALISTS}", "task": task, "students": students, "publish": publish}
    final = recipe.model_copy(update=changes)
    if recipe.cascade or KINDS[recipe.task.kind].no_certainty or not light:
        return final
    seconds = (*([[*final.parts][-1]] if parts else []), "teacher")
    cascades = tuple(Cascade(first=name, then=then) for name in final.light_students for then in seconds)
    return final.model_copy(update={"cascade": cascades})


def winner_recipe(recipe: Recipe, winner: str) -> Recipe:
    """Return the recipe of the winning row alone, every training of which is done.

    Further students without attention of its kind stay: they are called by their order. Pruning goes on from the
    recipe's own student, and stays with it.
    """
    model = winner.partition("/")[0]
    cascades = () if recipe.cascade == "auto" else recipe.cascade
    cascades = tuple(each for each in cascades if f"{each.first}-then-{each.then}".replace("/", "-") == model)
    names = {name.partition("/")[0] for each in cascades for name in (each.first, each.then)} | {model}
    kinds = {each.kind for name, each in recipe.light_students.items() if name in names}
    kept: list[AnyStudent] = [each for name, each in recipe.parts.items() if name in names]
    kept += [each for each in recipe.light_students.values() if each.kind in kinds]
    changes: dict[str, Any] = {"name": f"{recipe.name.removesuffix(OF_FINALISTS)}-winner", "cascade": cascades}
    if recipe.student and not names & {*recipe.parts, *recipe.light_students}:
        return recipe.model_copy(update=changes | {"students": (recipe.student, *kept)})
    return recipe.model_copy(update=changes | {"students": tuple(kept), "prune": None})
