"""`compress search`: from a recipe and a budget to one model within it, and to the recipe that makes it again.

A latency table says what each part of a shared student takes, one training makes all parts, rows of train that it did
not see rank them; a few are then trained on, and gated and timed together as the students of one ordinary run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from compress.console import Console, duration
from compress.errors import UsageError
from compress.model_shapes import parts_of, shape_of_folder, student_shape
from compress.model_sources import local_folder
from compress.pipeline.forecast.step_forecasts import StepForecasts, StepRow
from compress.pipeline.graph import Plan
from compress.pipeline.plan import default_models, make_plan
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import Options, Phase, RecipeSource, Result, execute, read_recipe
from compress.pipeline.run_lock import searches_folder
from compress.pipeline.step_store import StepStore
from compress.recipe.load import dump_recipe
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import LightStudent, Part
from compress.search.candidates import Candidate, SearchInfo, add_comparison, choose_finalists, front
from compress.search.compare_candidates import ANY_PART, check_any, compare, plan_comparison, timing_planners
from compress.search.ray_trainings import train_on_cluster
from compress.search.search_folder import FINALISTS_FILE, SEARCH_FILE, WINNER_FILE
from compress.search.search_recipes import (
    budget_overrides,
    finalists_recipe,
    light_students,
    searched_recipe,
    winner_recipe,
)
from compress.steps.shared_step import whole_student
from compress.storage.atomic_write import atomic_write, write_model


class Search(NamedTuple):
    """What a search found."""

    info: SearchInfo
    result: Result
    folder: Path
    """Where its recipes and search.json are."""


def search(
    source: RecipeSource,
    overrides: Sequence[str],
    options: Options,
    console: Console,
    *,
    finalists: int = 6,
    minutes: float | None = None,
    ray: str | None = None,
) -> Search:
    """Search for the best model within a recipe's budget, and write its recipe.

    Args:
        source: the recipe.
        overrides: of its keys, the budget among them.
        options: where runs and cards are.
        console: shows what is done.
        finalists: parts that are trained on, at most.
        minutes: what the search may take, by forecast.
        ray: the address of a cluster that trains the finalists.
    """
    began = time.monotonic()
    recipe = resolve(read_recipe(source, overrides, options.cards), options.cards)
    recipe = searched_recipe(recipe, console, options.cards)
    folder = searches_folder(options.runs) / recipe.name
    plan = plan_comparison(recipe, options)
    if minutes is not None:
        _check_minutes(expected_plan(recipe, options, 1), options, minutes)
    expected = expected_plan(recipe, options, finalists) if console.has_live_line else plan  # only its times are shown
    candidates, variant = compare(plan, recipe, replace(options, folder=folder), console, expected)
    light, parts = _kept_light(recipe, candidates), [each for each in candidates if isinstance(each.student, Part)]
    chosen = choose_finalists(parts, finalists)
    if minutes is not None:
        chosen = _in_time(recipe, parts, light, len(chosen), options, 60 * minutes - (time.monotonic() - began))
    trained = [*chosen, *light]
    check_any(recipe, trained, candidates)
    names = ", ".join(each.name for each in trained) or "the recipe's own student"
    console.note(f"search: {len(trained)} of {len(candidates)} candidates are trained on: {names}")
    final = _finalists(recipe, chosen, light)
    found = SearchInfo(
        name=recipe.name,
        limits=tuple(each.model_dump(exclude_none=True) for each in recipe.budget),
        max_drop=recipe.gate.max_drop,
        goal=recipe.rank_by,
        variant=variant,
        candidates=tuple(each.model_copy(update={"is_finalist": each in trained}) for each in candidates),
        run=final.name,
    )
    atomic_write(folder / FINALISTS_FILE, dump_recipe(final))
    write_model(folder / SEARCH_FILE, found)
    if ray is not None:
        train_on_cluster(ray, final, options, folder / "trainings", console)
    planned = make_plan(final, options.cards)
    best = max((each.score for each in chosen if each.score is not None), default=None)
    so_far = "" if best is None else f", the best at {100 * best:.1f} before"
    title = f"search 3/3, {len(trained)} of {len(candidates)} candidates{so_far}"
    result = execute(planned, replace(options, phase=Phase(title, planned)), console)
    if result.report is not None:
        winner = next((each.winner for each in result.report.verdicts), None)
        found = found.model_copy(update={"winner": winner, "finished": True})
        (folder / WINNER_FILE).unlink(missing_ok=True)
        if winner:
            atomic_write(folder / WINNER_FILE, dump_recipe(winner_recipe(final, winner)))
        write_model(folder / SEARCH_FILE, found)
    return Search(found, result, folder)


def search_recipe(
    source: RecipeSource,
    budget: str = "",
    *,
    goal: str | None = None,
    overrides: Sequence[str] = (),
    runs: str | Path = "runs",
    cards: Sequence[str | Path] = (),
    finalists: int = 6,
    minutes: float | None = None,
    ray: str | None = None,
    console: Console | None = None,
) -> Search:
    """Search as `compress search` does; ``result.report`` is the ledger of all that was trained.

    Where nothing is within the budget and passes the gate, ``info.winner`` is None; that is no exception.
    """
    options = Options(runs=Path(runs), cards=tuple(map(Path, cards)))
    given = [*overrides, *budget_overrides(budget, goal)]
    limits: dict[str, Any] = {"finalists": finalists, "minutes": minutes, "ray": ray}
    found = search(source, given, options, console or Console("quiet"), **limits)
    found.result.raise_for_failures()
    return found


def plan_search(source: RecipeSource, overrides: Sequence[str], options: Options, finalists: int = 6) -> Plan:
    """Return the plan of a search as it will be about: its finalists are known only once all parts are compared."""
    recipe = resolve(read_recipe(source, overrides, options.cards), options.cards)
    return expected_plan(searched_recipe(recipe, Console("quiet"), options.cards), options, finalists)


def expected_plan(recipe: Recipe, options: Options, finalists: int) -> Plan:
    """Return the plan of a searched recipe with so many parts, spread over all there are."""
    teacher = shape_of_folder(local_folder(recipe.teacher.source, recipe.teacher.revision, options.cards))
    whole = whole_student(recipe.shared)
    shape = student_shape(teacher, whole) if teacher and whole else teacher
    parts = parts_of(shape) if shape else [ANY_PART]
    step = max(1, len(parts) // finalists)
    chosen, light = parts[step - 1 :: step][:finalists], [*light_students(recipe).values()]
    final = finalists_recipe(recipe, chosen, light)
    timing = [] if final.prune else timing_planners(recipe)  # pruning may have a latency table of its own
    models = [*timing, *default_models(final), add_comparison]
    return make_plan(final, options.cards, limits=False, models=models)


def front_table(found: SearchInfo) -> list[dict[str, Any]]:
    """Return the parts that no other one is better than without being slower, and the others, for a table."""
    light = [each for each in found.candidates if isinstance(each.student, LightStudent)]
    return [
        {
            "student": each.name,
            "estimated p50": f"{each.milliseconds:.3g} ms",
            "estimated size": f"{each.bytes / 1e6:.1f} MB",
            "score before training": "" if each.score is None else f"{100 * each.score:.1f}",
            "within": "yes" if each.within else "no",
            "trained on": "yes" if each.is_finalist else "",
        }
        for each in [*light, *front([each for each in found.candidates if isinstance(each.student, Part)])]
    ]


def _kept_light(recipe: Recipe, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the students without attention that are trained: all of the recipe's own, else what can be within."""
    light = [each for each in candidates if isinstance(each.student, LightStudent)]
    return [each for each in light if each.within or each.name in recipe.light_students]


def _finalists(recipe: Recipe, parts: Sequence[Candidate], light: Sequence[Candidate]) -> Recipe:
    return finalists_recipe(recipe, [each.student for each in parts], [each.student for each in light])


def _check_minutes(plan: Plan, options: Options, minutes: float) -> None:
    """Refuse a limit of time in which not even one finalist can be trained and timed."""
    least = sum(row["least"] for row in _left(plan, options))
    if least > 60 * minutes:
        raise UsageError(
            f"--minutes {minutes:g}: with a single finalist this search takes {duration(least)} at least, by forecast.",
            hint="fewer rows (--set task.data.limit=2000), or compress search … --dry-run for the time of each stage",
        )


def _in_time(
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
        plan = make_plan(_finalists(recipe, chosen, light), options.cards)
        if sum((row["least"] + row["most"]) / 2 for row in _left(plan, options)) <= seconds:
            return chosen
    return choose_finalists(parts, min(most, 1))


def _left(plan: Plan, options: Options) -> list[StepRow]:
    """Return the forecast of the steps that a run would still do."""
    rows = StepForecasts(plan, StepStore(options.root), options.cards, ()).rows()
    return [row for row in rows if row["state"] not in ("done", "skipped")]
