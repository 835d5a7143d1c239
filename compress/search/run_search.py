"""`compress search`: from a recipe and a budget to one model within it, and to the recipe that makes it again.

Untrained models say what each part of a shared student takes, one training makes all parts, rows of train that it did
not see rank them; a few are then trained on, and gated and timed together as the students of one ordinary run.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from compress.console import Console
from compress.environment import require
from compress.errors import CompressError, ModelError, UsageError
from compress.models.fetch import fetch
from compress.pipeline.plan import make_plan
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import Options, Phase, RecipeSource, Result, execute, read_recipe
from compress.pipeline.run_lock import TRAININGS_FOLDER, keep_in_previous, searches_folder
from compress.recipe.load import dump_recipe
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import LightStudent, Part
from compress.search.candidates import (
    Candidate,
    SearchInfo,
    choose_finalists,
    front,
    shown_score,
)
from compress.search.compare_candidates import Compared, check_any, compare, plan_comparison
from compress.search.expected_plan import check_minutes, expected_plan, final_recipe, in_time, kept_light
from compress.search.ray_trainings import train_on_cluster
from compress.search.search_folder import FINALISTS_FILE, RECIPES_FOLDER, SEARCH_FILE, WINNER_FILE, read_search
from compress.search.search_recipes import (
    budget_overrides,
    recipe_of_row,
    searched_recipe,
    timed_target,
)
from compress.search.tune_training import Values, tune, tuned_recipe
from compress.storage.atomic_write import atomic_write, write_model
from compress.tasks import primary_metric


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
    trials: int = 0,
    ray: str | None = None,
) -> Search:
    """Search for the best model within a recipe's budget, and write its recipe.

    Args:
        source: the recipe.
        overrides: of its keys, the budget among them.
        options: where runs and cards are.
        console: shows what is done.
        finalists: parts that are trained on, at most.
        minutes: what the search may take, by forecast; trials have half of what is left of it.
        trials: of settings of the finalists' training.
        ray: the address of a cluster that trains the finalists.
    """
    began = time.monotonic()
    if trials:
        require("optuna", "search")
    recipe = resolve(read_recipe(source, overrides, options.cards), options.cards)
    if recipe.budget and recipe.distill:
        _fetch_origins(recipe, options)
    recipe = searched_recipe(recipe, console, options.cards)
    folder = searches_folder(options.runs) / recipe.name
    plan = plan_comparison(recipe, options)
    if minutes is not None:
        check_minutes(expected_plan(recipe, options, 1), options, minutes)
    expected = expected_plan(recipe, options, finalists)  # refuses a recipe of which finalists cannot be planned
    is_another = holds_another(folder, wanted_of(recipe))
    if is_another and (kept := keep_former(folder)):
        console.note(f"{folder} holds the search for another budget: it is kept in {kept}")
    compared = compare(plan, recipe, replace(options, folder=folder), console, expected)
    candidates = compared.candidates
    light, parts = kept_light(recipe, candidates), [each for each in candidates if isinstance(each.student, Part)]
    chosen, values = choose_finalists(parts, finalists), Values()
    ends = None if minutes is None else began + 60 * minutes
    if trials and chosen:
        values = _tuned(recipe, chosen, trials, replace(options, folder=folder), console, ends)
        recipe = tuned_recipe(recipe, values)
    if ends is not None:
        chosen = in_time(recipe, parts, light, len(chosen), options, ends - time.monotonic())
    trained = [*chosen, *light]
    check_any(recipe, trained, candidates, compared.teacher)
    _note_trained(trained, candidates, console)
    final = final_recipe(recipe, chosen, light)
    found = _looked_at(recipe, compared, trained, values, final.name)
    if is_another:
        (folder / WINNER_FILE).unlink(missing_ok=True)  # that of the former budget
    atomic_write(folder / FINALISTS_FILE, dump_recipe(final))
    write_model(folder / SEARCH_FILE, found)
    if ray is not None:
        train_on_cluster(ray, final, options, folder / TRAININGS_FOLDER, console)
    return _run_finalists(found, final, folder, options, console)


def _fetch_origins(recipe: Recipe, options: Options) -> None:
    """Get what candidates are made of: what is searched depends on its size. A run says why it cannot be had."""
    for named in (recipe.teacher, recipe.shared):
        if named.source:
            with suppress(CompressError):
                fetch(named.source, named.revision, options.cards)


def _note_trained(trained: Sequence[Candidate], candidates: Sequence[Candidate], console: Console) -> None:
    names = ", ".join(each.name for each in trained) or "the recipe's own student"
    console.note(f"search: {len(trained)} of {len(candidates)} candidates are trained on: {names}")


def wanted_of(recipe: Recipe) -> dict[str, Any]:
    """Return what search.json says that was wanted."""
    limits = tuple(each.model_dump(exclude_none=True) for each in recipe.budget)
    return {"limits": limits, "max_drop": recipe.gate.max_drop, "goal": recipe.rank_by}


def holds_another(folder: Path, wanted: Mapping[str, Any]) -> bool:
    """Return whether a folder has what a search found whose budget or goal was another than ``wanted``."""
    try:
        found = read_search(folder)
    except ModelError:
        return False
    has_result = found.finished or (folder / WINNER_FILE).is_file()  # one that runs again is not finished meanwhile
    return has_result and any(getattr(found, name) != value for name, value in wanted.items())


def keep_former(folder: Path) -> Path | None:
    """Keep what a search found beside its folder's files; returns where, None if it is there."""
    written = datetime.fromtimestamp((folder / SEARCH_FILE).stat().st_mtime, UTC)
    return keep_in_previous(folder, written.isoformat())


def _looked_at(
    recipe: Recipe, compared: Compared, trained: Sequence[Candidate], values: Values, run: str
) -> SearchInfo:
    """Return what was compared, and what is trained on in a run of this name."""
    return SearchInfo(
        name=recipe.name,
        **wanted_of(recipe),
        larger_is_better=primary_metric(recipe.task).larger_is_better,
        variant=compared.variant,
        teacher=compared.teacher,
        candidates=tuple(each.model_copy(update={"is_finalist": each in trained}) for each in compared.candidates),
        tuned=values,
        run=run,
    )


def _tuned(
    recipe: Recipe, chosen: Sequence[Candidate], count: int, options: Options, console: Console, ends: float | None
) -> Values:
    """Return the settings that trials of the middle finalist found, in half of the time that is left."""
    part = chosen[len(chosen) // 2].student
    assert isinstance(part, Part)
    until = None if ends is None else (ends + time.monotonic()) / 2
    return tune(recipe, part, count, options, console, until)


def _run_finalists(found: SearchInfo, final: Recipe, folder: Path, options: Options, console: Console) -> Search:
    """Train, time and judge the finalists, and write down which of them won."""
    planned, trained = make_plan(final, options.cards), [each for each in found.candidates if each.is_finalist]
    best = max((each.score for each in trained if each.score is not None), default=None)
    so_far = "" if best is None else f", best so far {shown_score(best, found.larger_is_better)}"
    title = f"search 3/3, {len(trained)} of {len(found.candidates)}{so_far}"
    result = execute(planned, replace(options, phase=Phase(title, planned)), console)
    if result.report is not None:
        at = timed_target(final).title
        winner = next((each.winner for each in result.report.verdicts if each.target == at), None)
        found = found.model_copy(update={"winner": winner, "finished": True})
        (folder / WINNER_FILE).unlink(missing_ok=True)
        teacher = result.report.teacher.partition("/")[0]
        if winner:
            alone = final.with_student(None) if winner.partition("/")[0] == teacher else final
            atomic_write(folder / WINNER_FILE, dump_recipe(recipe_of_row(alone, winner)))
        _write_recipes(
            folder / RECIPES_FOLDER, final, [row.model for row in result.report.rows if row.model != teacher]
        )
        write_model(folder / SEARCH_FILE, found)
    return Search(found, result, folder)


def _write_recipes(folder: Path, final: Recipe, models: Sequence[str]) -> None:
    """Write the recipe of each model that was trained, cascades among them, in place of those of an earlier search."""
    shutil.rmtree(folder, ignore_errors=True)
    for model in dict.fromkeys(models):
        atomic_write(folder / f"{model}.yaml", dump_recipe(recipe_of_row(final, f"{model}/", model)))


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
    tune: int = 0,
    ray: str | None = None,
    console: Console | None = None,
) -> Search:
    """Search as `compress search` does; ``result.report`` is the ledger of all that was trained.

    Where nothing is within the budget and passes the gate, ``info.winner`` is None; that is no exception.
    """
    if finalists < 1:
        raise UsageError(f"a search trains at least one finalist; got {finalists}.")
    options = Options(runs=Path(runs), cards=tuple(map(Path, cards)))
    given = [*overrides, *budget_overrides(budget, goal)]
    limits: dict[str, Any] = {"finalists": finalists, "minutes": minutes, "trials": tune, "ray": ray}
    found = search(source, given, options, console or Console("quiet"), **limits)
    found.result.raise_for_failures()
    return found


def front_table(found: SearchInfo) -> list[dict[str, Any]]:
    """Return the parts that no other one is better than without being slower, and the others, for a table."""
    light = [each for each in found.candidates if isinstance(each.student, LightStudent)]
    return [
        {
            "student": each.name,
            "estimated p50": f"{each.milliseconds:.3g} ms",
            "estimated size": f"{each.bytes / 1e6:.1f} MB",
            "score before training": shown_score(each.score, found.larger_is_better),
            "within": "yes" if each.within else "no",
            "trained on": "yes" if each.is_finalist else "",
        }
        for each in [*light, *front([each for each in found.candidates if isinstance(each.student, Part)])]
    ]
