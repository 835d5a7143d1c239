"""The steps that read data: the rows of every split, unlabelled texts, and columns to group scores by.

Step functions import heavy libraries inside, so that a plan, and a run that skips everything, load none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compress.pipeline.step_context import StepContext
from compress.recipe.task_schema import Task

SLICES_FILE = "slices.json"


def data(context: StepContext, task: Task, checks: Sequence[Callable[[int], object]]) -> None:
    """Read the rows of every role into memory-mapped files; ``checks`` refuse a number of those of train."""
    from compress.data.splits.prepare_splits import prepare_splits

    info = prepare_splits(task, task.data.split_seed, context.work, context.console)
    for check in checks:
        check(info.counts["train"])


def unlabelled(context: StepContext, task: Task) -> None:
    """Read the unlabelled texts into a memory-mapped file."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.data.splits.unlabelled_texts import prepare_unlabelled

    roles = load_prepared(context.inputs["data"])
    prepare_unlabelled(task, roles, task.data.split_seed, context.work, context.console)


def slices(context: StepContext, task: Task) -> None:
    """Record the values of the columns by which test scores are grouped."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.data.splits.slice_columns import slice_values

    roles = load_prepared(context.inputs["data"])
    values = slice_values(task, roles.test_numbers(), context.console)
    context.write_json(SLICES_FILE, {"columns": values})
