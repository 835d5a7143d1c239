"""What a search will take, by forecast: its plan before the finalists are known, and how many fit into a time."""

from collections.abc import Sequence
from functools import partial

from compress.console import Console, duration
from compress.errors import UsageError
from compress.model_shapes import part_shape, parts_of, student_shape
from compress.pipeline.forecast.step_forecasts import StepForecasts, StepRow
from compress.pipeline.graph import Plan
from compress.pipeline.plan import make_plan
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import Options, RecipeSource, read_recipe
from compress.pipeline.run_lock import searches_folder
from compress.pipeline.step_store import StepStore
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import AnyStudent, LightStudent, Part
from compress.search.candidates import (
    COMPARE,
    Candidate,
    choose_finalists,
    file_bytes,
    may_weigh,
    with_fewer_pieces,
)
from compress.search.compare_candidates import ANY_PART, plan_comparison, with_fit
from compress.search.search_folder import compared_before
from compress.search.search_recipes import finalists_recipe, light_students, searched_recipe
from compress.search.tune_training import TRIAL, add_trial
from compress.search.word_vectors import WordVectors, shared_origin, teacher_bytes
from compress.steps.shared_step import whole_student


def plan_search(
    source: RecipeSource,
    overrides: Sequence[str],
    options: Options,
    finalists: int = 6,
    minutes: float | None = None,
    trials: int = 0,
) -> Plan:
    """Return the plan of a search as it will be about: its finalists are known only once all parts are compared."""
    recipe = resolve(read_recipe(source, overrides, options.cards), options.cards)
    recipe = searched_recipe(recipe, Console("quiet"), options.cards)
    plan = expected_plan(recipe, options, finalists, trials)
    if minutes is not None:
        check_minutes(expected_plan(recipe, options, 1), options, minutes)
        while finalists > 1 and _expected_seconds(plan, options) > 60 * minutes:
            finalists -= 1
            plan = expected_plan(recipe, options, finalists, trials)
    return plan


def expected_plan(recipe: Recipe, options: Options, finalists: int, trials: int = 0) -> Plan:
    """Return the plan of a searched recipe with so many parts, those that it has compared or about such.

    Trials of settings are in it as trainings with the usual ones.
    """
    parts, light = _expected_finalists(recipe, options, finalists)
    tried = next((each for each in parts[len(parts) // 2 :] if isinstance(each, Part)), ANY_PART)
    names = [f"{TRIAL}-{number + 1}" for number in range(trials if parts else 0)]
    more = [partial(add_trial, part=tried, values={}, name=name) for name in names]
    plan, before = (
        make_plan(finalists_recipe(recipe, parts, light), options.cards),
        plan_comparison(recipe, options, more, light),
    )
    own = {step.name: step for step in plan.steps}
    compared = {step.name: own.get(step.name, step) for step in before.until([COMPARE, *names][-1])}
    plan.steps = [*compared.values(), *(step for step in plan.steps if step.name not in compared)]
    named = {model.name for model in plan.models}
    plan.models += [model for model in before.models if model.name not in named and model.step in compared]
    return plan


def _expected_finalists(recipe: Recipe, options: Options, count: int) -> tuple[list[AnyStudent], list[AnyStudent]]:
    """Return the parts and light students that a search will about train on.

    Where it has compared all parts, for any budget, these are known; else they are spread over those that do not weigh
    too much.
    """
    _, origin = shared_origin(recipe, options.cards)
    vectors = WordVectors(recipe, options.cards)
    light = {name: vectors.of_light(each) for name, each in light_students(recipe).items()}
    if origin is None:
        return [ANY_PART], [*light.values()]
    whole, size = whole_student(recipe.shared), teacher_bytes(recipe, options.cards)
    shape = student_shape(origin, whole) if whole else origin
    shape = with_fewer_pieces(shape, vectors.least.share(recipe.shared.vocabulary))
    tokenizer = vectors.least.tokenizer(recipe.shared.vocabulary)
    placed = [vectors.of_part(each, shape, tokenizer) for each in parts_of(shape)]
    weights = {
        each.part: file_bytes(part_shape(each.shared, each.part), vectors.bits) + each.tokenizer for each in placed
    }
    if compared := compared_before(searches_folder(options.runs) / recipe.name, [*weights]):
        by_units = {part.units: part for part in weights}  # with the word vectors that this budget has room for
        known = [each for each in compared.candidates if isinstance(each.student, Part)]
        parts = [(each, by_units[each.student.units]) for each in known if isinstance(each.student, Part)]
        found = [each.model_copy(update={"student": part, "bytes": weights[part]}) for each, part in parts]
        reference = compared.teacher.model_copy(update={"bytes": size})
        chosen = choose_finalists([with_fit(each, recipe, reference) for each in found], count)
        fast = [with_fit(each, recipe, reference) for each in compared.candidates if each not in known]
        names = {each.name for each in kept_light(recipe, fast)}
        return [each.student for each in chosen], [light[name] for name in light if name in names]
    small = [part for part, weighs in weights.items() if may_weigh(weighs, recipe.budget, size)]
    fit = small or [*weights]
    step = max(1, len(fit) // count)
    return [*fit[step - 1 :: step][:count]], [*light.values()]


def check_minutes(plan: Plan, options: Options, minutes: float) -> None:
    """Refuse a limit of time in which not even one finalist can be trained and timed."""
    least = sum(row["least"] for row in _left(plan, options))
    if least > 60 * minutes:
        raise UsageError(
            f"--minutes {minutes:g}: with a single finalist this search takes {duration(least)} at least, by forecast.",
            hint="fewer rows (--set task.data.limit=2000), or compress search … --dry-run for the time of each stage",
        )


def in_time(
    recipe: Recipe,
    parts: Sequence[Candidate],
    light: Sequence[Candidate],
    most: int,
    options: Options,
    seconds: float,
) -> list[Candidate]:
    """Return as many finalists as can be trained and timed in these seconds by forecast, one at least."""
    for count in range(most, 1, -1):
        chosen = choose_finalists(parts, count)
        plan = make_plan(final_recipe(recipe, chosen, light), options.cards)
        if _expected_seconds(plan, options) <= seconds:
            return chosen
    return choose_finalists(parts, min(most, 1))


def _expected_seconds(plan: Plan, options: Options) -> float:
    """Return the middle of what the steps that are left take."""
    return float(sum((row["least"] + row["most"]) / 2 for row in _left(plan, options)))


def _left(plan: Plan, options: Options) -> list[StepRow]:
    """Return the forecast of the steps that a run would still do."""
    rows = StepForecasts(plan, StepStore(options.root), options.cards, ()).rows()
    return [row for row in rows if row["state"] not in ("done", "skipped")]


def kept_light(recipe: Recipe, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the students without attention that are trained: all of the recipe's own, else what can be within."""
    light = [each for each in candidates if isinstance(each.student, LightStudent)]
    return [each for each in light if each.within or each.name in recipe.light_students]


def final_recipe(recipe: Recipe, parts: Sequence[Candidate], light: Sequence[Candidate]) -> Recipe:
    """Return the recipe of the run of the finalists."""
    return finalists_recipe(recipe, [each.student for each in parts], [each.student for each in light])
