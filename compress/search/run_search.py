"""`compress search`: from a recipe and a budget to one model within it, and to the recipe that makes it again.

A latency table says what each part of a shared student takes, one training makes all parts, rows of train that it did
not see rank them; a few are then trained on, and gated and timed together as the students of one ordinary run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from compress.console import Console
from compress.errors import CompressError, UsageError
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import parts_of, shape_of_folder, student_shape
from compress.model_sources import local_folder
from compress.pipeline.graph import Plan
from compress.pipeline.plan import ModelPlanner, default_models, make_plan
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import Options, RecipeSource, Result, execute, read_recipe
from compress.pipeline.step_store import StepStore
from compress.pipeline.steps.latency_step import add_table, read_workload
from compress.prune.latency_table import LATENCY_STEP, TABLE_FILE, LatencyTable, read_table
from compress.recipe.load import dump_recipe
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import Part
from compress.search.candidates import (
    COMPARE,
    Candidate,
    SearchInfo,
    add_comparison,
    choose_finalists,
    estimate,
    front,
    may_fit,
    read_scores,
)
from compress.search.search_recipes import (
    budget_overrides,
    finalists_recipe,
    light_students,
    searched_recipe,
    timed_target,
    winner_recipe,
)
from compress.steps.shared_step import SECTION, add_shared, whole_student
from compress.storage.atomic_write import atomic_write, write_model

SEARCHES, SEARCH_FILE, FINALISTS_FILE, WINNER_FILE = "searches", "search.json", "finalists.yaml", "winner.yaml"
ANY_PART = Part(layers=1, heads=1, ffn=1)
"""Stands for all parts while the shared student is planned."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")
ROUND_TO = 16
"""Neurons between the widths that the latency table lists, as `prune.round_to`."""


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
) -> Search:
    """Search for the best model within a recipe's budget, and write its recipe."""
    recipe = searched_recipe(resolve(read_recipe(source, overrides, options.cards), options.cards), console)
    plan = _plan_comparison(recipe, options)
    found = _candidates(plan, recipe, options, console)
    chosen = choose_finalists(found.candidates, finalists)
    if not chosen and not light_students(recipe):
        raise UsageError(
            f"no part of the shared student can be within this budget: {_nearest_parts(found.candidates)}."
        )
    found = found.model_copy(
        update={
            "candidates": tuple(each.model_copy(update={"is_finalist": each in chosen}) for each in found.candidates)
        }
    )
    names = ", ".join(each.part.name for each in chosen) or _nearest_parts(found.candidates)
    console.note(f"search: {len(chosen)} of {len(found.candidates)} parts are trained on: {names}")
    final = finalists_recipe(recipe, [each.part for each in chosen])
    folder = options.runs.parent / SEARCHES / recipe.name
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / FINALISTS_FILE, dump_recipe(final))
    write_model(folder / SEARCH_FILE, found)
    result = execute(make_plan(final, options.cards), options, console)
    if result.report is not None:
        found = found.model_copy(update={"winner": next((each.winner for each in result.report.verdicts), None)})
        write_model(folder / SEARCH_FILE, found)
        if found.winner:
            atomic_write(folder / WINNER_FILE, dump_recipe(winner_recipe(final, found.winner)))
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
    console: Console | None = None,
) -> Search:
    """Search as `compress search` does; ``result.report`` is the ledger of all that was trained.

    Where nothing is within the budget and passes the gate, ``info.winner`` is None; that is no exception.
    """
    options = Options(runs=Path(runs), cards=tuple(map(Path, cards)))
    given = [*overrides, *budget_overrides(budget, goal)]
    found = search(source, given, options, console or Console("quiet"), finalists=finalists)
    found.result.raise_for_failures()
    return found


def expected_plan(source: RecipeSource, overrides: Sequence[str], options: Options, finalists: int = 6) -> Plan:
    """Return the plan of a search as it will be about: its finalists are known only once all parts are compared."""
    recipe = searched_recipe(resolve(read_recipe(source, overrides, options.cards), options.cards), Console("quiet"))
    teacher = shape_of_folder(local_folder(recipe.teacher.source, recipe.teacher.revision, options.cards))
    whole = whole_student(recipe.shared)
    shape = student_shape(teacher, whole) if teacher and whole else teacher
    parts = parts_of(shape) if shape else [ANY_PART]
    step = max(1, len(parts) // finalists)
    return make_plan(finalists_recipe(recipe, parts[step - 1 :: step][:finalists]), options.cards, limits=False)


def front_table(found: SearchInfo) -> list[dict[str, Any]]:
    """Return the parts that no other one is better than without being slower, for a table."""
    return [
        {
            "part": each.part.name,
            "estimated p50": f"{each.milliseconds:.3g} ms",
            "estimated size": f"{each.bytes / 1e6:.1f} MB",
            "score before training": f"{100 * (each.score or 0.0):.1f}",
            "within": "yes" if each.within else "no",
            "trained on": "yes" if each.is_finalist else "",
        }
        for each in front(found.candidates)
    ]


def _plan_comparison(recipe: Recipe, options: Options) -> Plan:
    """Plan a search up to the comparison of all parts."""
    alone = recipe.model_copy(update={"students": (), "cascade": (), "prune": None})
    first = timed_target(recipe)
    targets = (first, *(each for each in recipe.targets if each != first))  # parts are timed at the first
    with_parts = alone.model_copy(update={"students": (ANY_PART,), "targets": targets})
    finetune = default_models(alone)
    planners: list[ModelPlanner] = [_add_table, *finetune, add_shared, add_comparison]
    return make_plan(with_parts, options.cards, limits=False, models=planners)


def _add_table(plan: Plan, cards: Sequence[Path]) -> None:
    add_table(plan, cards, whole_student(plan.recipe.shared), ROUND_TO)


def _candidates(plan: Plan, recipe: Recipe, options: Options, console: Console) -> SearchInfo:
    """Return all parts with what they take, weigh and score; a budget out of reach is refused before any training."""
    timed = execute(plan, replace(options, until=LATENCY_STEP), console)
    store = StepStore(options.root)
    table = read_table(store.folder_of(timed.outcome.records[LATENCY_STEP]) / TABLE_FILE)
    shape, _ = read_workload(store.folder_of(timed.outcome.records["workload"]))
    _check_reach(recipe, table, shape)
    compared = execute(plan, replace(options, until=COMPARE), console)
    folders = {name: store.folder_of(record) for name, record in compared.outcome.records.items()}
    if COMPARE not in folders:
        raise CompressError("the parts of the shared student could not be compared; the log has the reason.")
    target, scores, shared = (
        timed_target(recipe).title,
        read_scores(folders[COMPARE]),
        shape_of_folder(folders[SECTION]),
    )
    assert shared is not None
    tokenizer = sum(
        (folders[SECTION] / name).stat().st_size for name in TOKENIZER_FILES if (folders[SECTION] / name).is_file()
    )
    teacher = sum(file.stat().st_size for file in folders[plan.teacher.step].iterdir() if file.is_file())
    candidates = list[Candidate]()
    for part in parts_of(shared):
        made = estimate(table, shared, part, tokenizer).model_copy(update={"score": scores[part.name]})
        candidates.append(made.model_copy(update={"within": may_fit(made, recipe.budget, target, teacher)}))
    budget = {"limits": [each.model_dump(exclude_none=True) for each in recipe.budget], "drop": recipe.gate.max_drop}
    return SearchInfo(name=recipe.name, budget=budget, variant=table.variant, candidates=tuple(candidates))


def _nearest_parts(candidates: Sequence[Candidate]) -> str:
    """Return what the fastest part takes and what the smallest weighs, by estimate."""
    fastest = min(candidates, key=lambda each: each.milliseconds)
    smallest = min(candidates, key=lambda each: each.bytes)
    return f"the fastest takes {fastest.milliseconds:.3g} ms, the smallest has {smallest.bytes / 1e6:.2g} MB"


def _check_reach(recipe: Recipe, table: LatencyTable, shape: ShapeInfo) -> None:
    """Refuse a budget of time that no part can meet, where no student without attention can do the task either."""
    if light_students(recipe):
        return
    fastest = min((estimate(table, shape, part, 0) for part in parts_of(shape)), key=lambda each: each.milliseconds)
    if not may_fit(fastest.model_copy(update={"bytes": 0}), recipe.budget, timed_target(recipe).title, None):
        raise UsageError(
            f"nothing can meet this budget: the smallest part takes {fastest.milliseconds:.3g} ms by the latency table"
            f" ({table.variant}, {table.length} word pieces), and a student without attention cannot do"
            f" {recipe.task.kind}."
        )
