"""What each kind of step does: read its inputs, call one function of its room, leave the result in its folder.

Those that train models stand in `training`, those that answer with them in `answering`. A step returns how much work it
did where later runs are forecast by that. Heavy libraries are imported inside, so that a plan, and a run that skips
everything, load none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compress.pipeline.step_context import Workbench
from compress.recipe.measure_schema import Measure, Target
from compress.recipe.schema import Task

if TYPE_CHECKING:
    from compress.pipeline.graph import Competitor, Plan
    from compress.tasks.base import Kind, Row, TaskInput
    from compress.variants import Variant

SLICES_FILE = "slices.json"
DISAGREEMENTS_FILE = "disagreements.jsonl"
"""Holds texts of the user's data: it stays in the run's folder, and is never published."""

PARITY_ROWS, PARITY_BATCH = 128, 8
"""Rows of train, and rows together, on which a variant's answers are compared with its parent's."""

TIMED_ROWS = 512
"""Rows of test whose texts stand for all of them when timing."""


def data(bench: Workbench, task: Task, seed: int) -> float:
    """Read the rows of every role into memory-mapped files."""
    from compress.data.splits.prepare_splits import prepare

    info = prepare(task, seed, bench.work, bench.console)
    return float(sum(info.counts.values()))


def unlabelled(bench: Workbench, task: Task, seed: int) -> float:
    """Read the texts without an answer into a memory-mapped file."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.data.splits.unlabelled_texts import prepare_unlabelled

    return float(prepare_unlabelled(task, load_prepared(bench.inputs["data"]), seed, bench.work, bench.console).count)


def build(bench: Workbench, parent: str, variant: Variant) -> None:
    """Export or quantize one model; its answers are compared with its parent's on rows of train."""
    from compress.data.encode import by_length, encode_rows
    from compress.data.splits.prepare_splits import load_prepared
    from compress.data.tokenizer import TextTokenizer

    roles, source = load_prepared(bench.inputs["data"]), bench.inputs[parent]
    task = roles.info.task_info
    rows = roles.rows("train")
    few = [rows[index] for index in range(min(PARITY_ROWS, len(rows)))]
    encoded = encode_rows(few, task, TextTokenizer.load(source))
    sample = [encoded.batch(indices) for indices in by_length(encoded.lengths, PARITY_BATCH)]
    variant.make(source, bench.work, sample=sample, console=bench.console)


def slices(bench: Workbench, task: Task, seed: int) -> None:
    """Note the values of the columns by which the scores of test are told apart."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.data.splits.slice_columns import slice_values

    info = load_prepared(bench.inputs["data"]).info
    values = slice_values(task, info.labels, seed, info.counts["test"], bench.console)
    bench.leave(SLICES_FILE, {"columns": values})


def measure(
    bench: Workbench,
    targets: Sequence[Target],
    settings: Measure,
    competitors: Sequence[Competitor],
    seed: int,
    limits: bool,
) -> float:
    """Time every variant at every target it runs on, and what else the recipe asks about speed and memory."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.pipeline.steps.measure_step import Entrant, measure_all, turn_seconds, write_measured
    from compress.tasks import kind_of

    roles = load_prepared(bench.inputs["data"])
    entrants = [
        Entrant(
            key=competitor.key,
            folder=bench.inputs[competitor.step],
            variant=None if competitor.variant.build else competitor.variant.info,
            titles=frozenset(competitor.scores),
        )
        for competitor in competitors
        if competitor.step in bench.inputs
    ]
    task = roles.info.task_info
    texts = sample_texts(roles.rows("test"), kind_of(task), TIMED_ROWS)
    measured = measure_all(
        entrants, targets, texts, settings, longest=task.max_length, seed=seed, limits=limits, console=bench.console
    )
    write_measured(bench.work, measured)
    return turn_seconds({entrant.key: entrant.titles for entrant in entrants}, targets, settings)


def sample_texts(rows: Sequence[Row], kind: Kind, most: int) -> list[TaskInput]:
    """What would be handed over of rows at even steps through all: the same ones every time."""
    step = max(1, len(rows) // most)
    return [kind.to_input(rows[index]) for index in range(0, len(rows), step)][:most]


def report(bench: Workbench, plan: Plan) -> None:
    """Put everything that was found together, judge it and draw it; rows that stand out go into a file beside it."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.measure.quality.disagreement import write_disagreements
    from compress.pipeline.steps.build_report import assemble, disagreements
    from compress.report.pages.render import write_pages
    from compress.tasks import kind_of

    made = assemble(plan, bench)
    write_pages(bench.work, made)
    rows = load_prepared(bench.inputs["data"]).rows("test")
    label_fields = kind_of(made.task).label_fields
    write_disagreements(bench.work / DISAGREEMENTS_FILE, rows, disagreements(made), label_fields)
