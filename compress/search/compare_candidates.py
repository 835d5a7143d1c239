"""What all candidates of a search take, weigh and score: the steps that find out, and a budget out of reach refused."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from compress import format_numbers as fmt
from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.data.splits.split_indices import CERTAINTY, DISAGREEMENT, LOSS
from compress.errors import CompressError, UsageError, pluralize
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import parts_of, shape_of_folder
from compress.pipeline.graph import Plan
from compress.pipeline.plan import ModelPlanner, default_models, make_plan
from compress.pipeline.run import Options, Phase, execute
from compress.pipeline.step_store import StepStore
from compress.pipeline.steps.latency_step import read_workload
from compress.recipe.schema import Gate, Recipe
from compress.recipe.student_schema import AnyStudent, Part
from compress.search.candidate_times import (
    LIGHT_TIMES,
    PART_TIMES,
    LightTimes,
    PartTimes,
    add_light_times,
    add_part_times,
    read_light_times,
    read_part_times,
)
from compress.search.candidates import (
    COMPARE,
    Candidate,
    Reference,
    add_comparison,
    estimate,
    estimate_light,
    may_fit,
    more_is_better,
    read_scores,
    with_fewer_pieces,
)
from compress.search.search_recipes import light_students, timed_target
from compress.search.word_vectors import WordVectors, teacher_bytes, tokenizer_bytes
from compress.steps.shared_step import SECTION, add_shared
from compress.tasks import primary_metric

ANY_PART = Part(layers=1, heads=1, ffn=1)
"""In place of all parts while the shared student is planned."""
CLEARLY_APART = 0.05
"""The difference between two candidates that select should be able to show at least."""
RARELY_WRONG = 1000
"""Rows of select from which on nothing is said of how often a winner has lost more than is allowed."""
OFTEN_WRONG = (
    "select has {rows} rows. By simulation, of 100 winners that a search chooses among ten or more candidates on 500"
    " rows about 20 have lost more than is allowed, on 2,000 rows 5 to 8;"
    " gate: {{strict: true}} leaves 5 to 8, and 1 to 2."
)
"""What `python -m benchmarks.gate_errors` finds."""


class Compared(NamedTuple):
    """What all candidates take, weigh and score."""

    candidates: list[Candidate]
    variant: str
    """In which parts were timed."""
    teacher: Reference


def plan_comparison(
    recipe: Recipe, options: Options, more: Sequence[ModelPlanner] = (), light: Sequence[AnyStudent] = ()
) -> Plan:
    """Plan a search up to the comparison of all parts, and ``more`` steps that follow it.

    Students without attention (``light``) come before the shared student: they are trained in a minute or two, and a
    search that ends early has them.
    """
    alone = recipe.model_copy(update={"students": tuple(light), "cascade": (), "prune": None})
    first = timed_target(recipe)
    targets = (first, *(each for each in recipe.targets if each != first))  # students are timed at the first
    with_parts = alone.model_copy(update={"students": (ANY_PART, *light), "targets": targets})
    planners = [*timing_planners(recipe), *default_models(alone), add_shared, add_comparison, *more]
    return make_plan(with_parts, options.cards, limits=False, models=planners)


def timing_planners(recipe: Recipe) -> list[ModelPlanner]:
    """Return what plans the steps that time candidates before they are trained."""
    return [add_part_times, partial(add_light_times, students=light_students(recipe))]


def compare(plan: Plan, recipe: Recipe, options: Options, console: Console, expected: Plan) -> Compared:
    """Return all candidates with what they take, weigh and score.

    A budget out of reach is refused before anything is trained; where no part can be within it, none is trained.
    ``expected``: about all steps of the search.
    """
    phase = Phase("search 1/3, what fits", expected)
    timed = execute(plan, replace(options, until=LIGHT_TIMES, phase=phase), console)
    store = StepStore(options.root)
    folders = {name: store.folder_of(record) for name, record in timed.outcome.records.items()}
    of_parts, times = read_part_times(folders[PART_TIMES]), read_light_times(folders[LIGHT_TIMES])
    teacher = Reference(bytes=teacher_bytes(recipe, options.cards), milliseconds=times.teacher)
    fits = partial(with_fit, recipe=recipe, teacher=teacher)
    roles, (shape, _) = load_prepared(folders["data"]), read_workload(folders["workload"])
    vectors = WordVectors(recipe, options.cards, roles)
    light = [fits(each) for each in _least_light(recipe, times, vectors)]
    parts = [fits(each) for each in _least_parts(recipe, of_parts, shape, vectors)]
    check_any(recipe, [each for each in (*parts, *light) if each.within], [*parts, *light], teacher)
    if smaller := sum(has_smaller_vectors(each, recipe) for each in (*parts, *light) if each.within):
        which = f"{smaller} of the candidates within the budget"
        console.note(f"search: {which} have smaller word vectors (factors, fewer pieces), as the budget's size needs")
    is_share = primary_metric(recipe.task).larger_is_better  # an error has no points
    if is_share and (problem := select_too_small(roles.info.counts["select"], recipe.gate)):
        console.warn(problem)
    if any(each.within for each in parts):
        within = sum(each.within for each in (*parts, *light))
        phase = Phase(f"search 2/3, {within} of {len(parts) + len(light)} may fit", expected)
        kept = [each.student for each in light if each.within]
        plan = plan_comparison(recipe, options, light=kept)
        parts = [fits(each) for each in _scored(plan, of_parts, vectors, replace(options, phase=phase), console)]
    return Compared([*parts, *light], of_parts.variant, teacher)


def _least_light(recipe: Recipe, times: LightTimes, vectors: WordVectors) -> Iterator[Candidate]:
    """Yield the students without attention as small as they may become."""
    for name, each in light_students(recipe).items():
        student, least = vectors.of_light(each), vectors.light_least
        pieces, tokenizer = least.count(student.vocabulary), least.tokenizer(student.vocabulary)
        yield estimate_light(name, student, times.milliseconds[name], pieces, tokenizer, vectors.light_bits)


def _least_parts(recipe: Recipe, times: PartTimes, shape: ShapeInfo, vectors: WordVectors) -> Iterator[Candidate]:
    """Yield all parts as small as they may become."""
    rule, least = recipe.shared.vocabulary, vectors.least
    smallest, tokenizer = with_fewer_pieces(shape, least.share(rule)), least.tokenizer(rule)
    for each in parts_of(shape):
        part, shared, its_tokenizer = vectors.of_part(each, smallest, tokenizer)
        yield estimate(times, shared, part, its_tokenizer, vectors.bits)


def has_smaller_vectors(candidate: Candidate, recipe: Recipe) -> bool:
    """Return whether the word vectors of a candidate are smaller than the recipe has them."""
    student = candidate.student
    has_fewer = student.vocabulary is not None and student not in light_students(recipe).values()
    return has_fewer or (isinstance(student, Part) and student.factors is not None)


def with_fit(candidate: Candidate, recipe: Recipe, teacher: Reference) -> Candidate:
    """Return a candidate with whether it can be within the budget, of which ratios are to the ``teacher``."""
    within = may_fit(candidate, recipe.budget, timed_target(recipe).title, teacher)
    return candidate.model_copy(update={"within": within})


def _scored(
    plan: Plan, times: PartTimes, vectors: WordVectors, options: Options, console: Console
) -> Iterator[Candidate]:
    """Train the shared student, and yield all its parts with their scores, those with all word vectors."""
    compared = execute(plan, replace(options, until=COMPARE), console)
    store = StepStore(options.root)
    folders = {name: store.folder_of(record) for name, record in compared.outcome.records.items()}
    if COMPARE not in folders:
        raise CompressError("the parts of the shared student could not be compared; the log has the reason.")
    scores, shared = read_scores(folders[COMPARE]), shape_of_folder(folders[SECTION])
    assert shared is not None
    tokenizer = tokenizer_bytes(folders[SECTION])
    for each in parts_of(shared):
        part, shape, its_tokenizer = vectors.of_part(each, shared, tokenizer)
        score = more_is_better(scores[each.name], plan.recipe.task)
        made = estimate(times, shape, part, its_tokenizer, vectors.bits)
        yield made.model_copy(update={"score": score})


def select_too_small(rows: int, gate: Gate) -> str | None:
    """Return what so many rows of select cannot tell, or how often their winner has lost more than is allowed."""
    smallest, wanted = CERTAINTY * (DISAGREEMENT / rows) ** 0.5, max(gate.max_drop, LOSS)
    if smallest <= CLEARLY_APART:
        return OFTEN_WRONG.format(rows=rows) if rows < RARELY_WRONG and not gate.strict else None
    text = f"select has {pluralize(rows, 'row')}, too few to tell apart candidates that differ by less than"
    needed = CERTAINTY**2 * DISAGREEMENT / wanted**2
    return f"{text} {fmt.points(smallest)}: about {needed:,.0f} would tell {fmt.points(wanted)}."


def check_any(recipe: Recipe, left: Sequence[Candidate], candidates: Sequence[Candidate], teacher: Reference) -> None:
    """Refuse a budget that nothing can meet; what the recipe's own students take is known once they are trained."""
    if left or recipe.student or recipe.light_students:
        return
    fastest = min(candidates, key=lambda each: each.milliseconds)
    smallest = min(candidates, key=lambda each: each.bytes)
    timed = f"; the teacher in PyTorch takes {teacher.milliseconds:.3g} ms" if teacher.milliseconds else ""
    raise UsageError(
        f"nothing can meet this budget: of {len(candidates)} candidates, the fastest, {fastest.name}, takes about"
        f" {fastest.milliseconds:.3g} ms, and the smallest, {smallest.name}, has {smallest.bytes / 1e6:.2g} MB"
        f" at least{timed}."
    )
