"""`compress probe`: reads the recipe and its rows, opens the models, and shows and writes what was found."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.cards import available
from compress.console import Console
from compress.errors import UsageError, nearest
from compress.pipeline.run import RecipeSource, read_recipe
from compress.probe.probe_result import ProbeReport, tables
from compress.publish.pull import checked_model
from compress.report.report_schema import PROBE_PAGE
from compress.tasks.presets import PRESETS

if TYPE_CHECKING:
    from compress.data.splits.prepare_splits import PreparedData
    from compress.probe.probe_models import MakeTask
    from compress.probe.states import ProbedModel
    from compress.recipe.task_schema import Task

SURFACE = "surface"
"""All surface tasks; those that these texts do not allow are left out."""
TEXTS_RECIPE = "quickstart"
"""The recipe whose texts surface tasks are made of where no recipe is named."""
LEAST_ROWS, MAX_ROWS = 50, 50_000
"""Rows that may be asked for: the vectors of one layer are in memory."""


def probe_model(
    models: str | Path | Sequence[str | Path],
    task: RecipeSource | Sequence[str],
    *,
    tags: Sequence[str] = (),
    rows: int = 5_000,
    seed: int = 0,
    overrides: Sequence[str] = (),
    cards: Sequence[str | Path] = (),
    console: Console | None = None,
) -> ProbeReport:
    """Return what the layers and heads of one or several models know and do, and how the models differ.

    Args:
        models: cards, folders or hub ids; each is compared with the one before it.
        task: a recipe (file, shipped name or mapping), a named task, a surface task of its texts (`length`,
            `word-content`, `word-order`, `punctuation`; `surface` is all of them), or a list with at most one recipe.
        tags: further columns of the recipe's rows that hold a tag for each word.
        rows: of train that are read, at most; probes are scored on rows of select, never on test.
        seed: of samples.
        overrides: changes of the recipe (`task.data.train=rows.csv`).
        cards: folders of your own cards.
        console: where progress is shown.
    """
    from compress.probe.probe_models import make_questions, probe_models
    from compress.probe.probe_tasks import sample_rows

    if not LEAST_ROWS <= rows <= MAX_ROWS:
        raise UsageError(f"a probe reads {LEAST_ROWS} to {MAX_ROWS:,} rows, not {rows:,}.")
    folders, console = tuple(map(Path, cards)), console or Console("quiet")
    sources = [models] if isinstance(models, (str, Path)) else list(models)
    if not sources:
        raise UsageError("name a model to probe.")
    recipe, surface, asked = _tasks(task, folders)
    chosen = read_recipe(TEXTS_RECIPE if recipe is None else recipe, overrides, folders).task
    opened = list(open_models(sources, folders))
    with tempfile.TemporaryDirectory(prefix="compress-probe-") as work:
        prepared = _prepared(chosen, Path(work), console)
        sample = sample_rows(prepared, rows, seed)
        further: dict[str, MakeTask] = {name: partial(_tag_task, chosen, name, rows, seed) for name in tags}
        own = None if recipe is None else chosen.name or chosen.kind
        questions = make_questions(sample, own, surface, seed, further, asked)
    for name, reason in questions.left_out.items():
        console.note(f"{name} is left out: {reason}")
    return probe_models(opened, questions, chosen.max_length, rows, seed, console)


def probe_and_show(
    models: Sequence[str],
    task: Sequence[str],
    console: Console,
    to: Path | None,
    **settings: Any,
) -> None:
    """Probe models, show the tables, and write the page and its data into ``to``."""
    from compress.probe.probe_page import write_probe

    if to is not None and to.exists() and not to.is_dir():
        raise UsageError(f"--to {to} is a file; name a folder.")
    report = probe_model(models, list(task), console=console, **settings)
    if to is not None:
        write_probe(to, report)
    if console.format == "json":
        console.data(report)
        return
    for table in tables(report):
        console.table(table.rows, table.columns, title=table.title, right=table.numeric)
        for line in table.lines:
            console.note(line)
    if to is not None:
        console.note(f"page: {to / PROBE_PAGE}")


def _tasks(
    given: RecipeSource | Sequence[str], cards: Sequence[Path]
) -> tuple[RecipeSource | None, list[str], frozenset[str]]:
    """Return the recipe, if any, the surface tasks, and those of them that were asked for by name."""
    from compress.probe.surface_tasks import SURFACE_TASKS

    named = [given] if isinstance(given, (str, Path, Mapping)) else list(given)
    recipes = [each for each in named if isinstance(each, Mapping) or str(each) not in (*SURFACE_TASKS, SURFACE)]
    surface = [str(each) for each in named if each not in recipes]
    asked = frozenset(surface) - {SURFACE}
    surface = list(SURFACE_TASKS) if SURFACE in surface else list(dict.fromkeys(surface))
    if len(recipes) > 1:
        raise UsageError(f"one recipe or named task at a time; {', '.join(map(str, recipes))} are {len(recipes)}.")
    if not recipes:
        if not surface:
            raise UsageError(f"name a task: a recipe, {SURFACE}, or one of {', '.join(SURFACE_TASKS)}.")
        return None, surface, asked
    (recipe,) = recipes
    if isinstance(recipe, Mapping) or Path(recipe).is_file() or Path(recipe).suffix:
        return recipe, surface, asked
    presets = [str(preset["name"]) for preset in PRESETS]
    shipped = available("recipes", cards)
    if str(recipe) in shipped:
        return str(recipe), surface, asked
    if str(recipe) not in presets:
        known = [*SURFACE_TASKS, SURFACE, *presets, *shipped]
        raise UsageError(f"there is no recipe or task '{recipe}'{nearest(str(recipe), known)}.")
    return {"task": str(recipe), "teacher": "minilm-l6"}, surface, asked


def open_models(sources: Sequence[str | Path], cards: Sequence[Path]) -> Iterator[ProbedModel]:
    """Load the models; of equal names each gets its path."""
    from compress.models.fetch import fetch
    from compress.probe.states import ProbedModel

    titles = [Path(source).name or str(source) for source in sources]
    if len(set(map(str, sources))) < len(sources):
        raise UsageError("the same model is named twice.")
    for source, title in zip(sources, titles, strict=True):
        named = checked_model(str(source))
        folder = Path(named) if isinstance(source, Path) else fetch(named, cards=cards)
        yield ProbedModel.open(folder, title if titles.count(title) == 1 else str(source))


def _prepared(task: Task, work: Path, console: Console) -> PreparedData:
    from compress.data.splits.prepare_splits import load_prepared, prepare_splits

    prepare_splits(task, task.data.split_seed, work, console)
    return load_prepared(work)


def _tag_task(task: Task, column: str, rows: int, seed: int, corpus: Any) -> Any:
    """Return the task of a further column, from a sample of train of which a fifth is held out."""
    from compress.data.loading.row_sources import open_sources
    from compress.probe.probe_tasks import tags_of_column

    random, kept = np.random.default_rng(seed), list[Any]()
    for number, raw in enumerate(open_sources(task, Console("quiet"))["train"]()):
        if raw.fault is not None:
            continue
        if len(kept) < rows:
            kept.append(raw)
        elif (place := int(random.integers(number + 1))) < rows:
            kept[place] = raw
    edge = len(kept) - len(kept) // 5
    mixed = [kept[place] for place in random.permutation(len(kept))]  # a file may be sorted
    sample = ((place >= edge, place, raw.values, raw.where) for place, raw in enumerate(mixed))
    return tags_of_column(task, column, sample, corpus, seed)
