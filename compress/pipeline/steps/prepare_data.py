"""The steps that read data: the rows of every split, unlabelled texts, columns to group scores by; and facts of it.

Step functions import heavy libraries inside, so that a plan, and a run that skips everything, load none of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compress.data.encode import encode_sample
from compress.data.loading.data_digest import find_files
from compress.data.loading.row_sources import slice_values
from compress.data.splits.prepare_splits import PreparedData, load_prepared, prepare_splits
from compress.data.splits.unlabelled_texts import UNLABELLED, prepare_unlabelled, unlabelled_info
from compress.data.tokenizer import TextTokenizer
from compress.pipeline.graph import Plan
from compress.pipeline.step_context import StepContext
from compress.recipe.task_schema import Data, Task
from compress.report.run_facts import DataFacts
from compress.select.cascade_threshold import check_classes

SLICES_FILE = "slices.json"


def data(
    context: StepContext, task: Task, checks: Sequence[Callable[[int], object]], *, every_class: bool = False
) -> None:
    """Read the rows of every role into memory-mapped files.

    Args:
        context: of the step.
        task: of the recipe.
        checks: refuse a number of rows of train.
        every_class: whether select must have rows of every class.
    """
    info = prepare_splits(task, task.data.split_seed, context.work, context.console)
    for check in checks:
        check(info.counts["train"])
    if every_class:
        check_classes(info)


def unlabelled(context: StepContext, task: Task) -> None:
    """Read the unlabelled texts into a memory-mapped file."""
    roles = load_prepared(context.inputs["data"])
    prepare_unlabelled(task, roles, task.data.split_seed, context.work, context.console)


def slices(context: StepContext, task: Task) -> None:
    """Record the values of the columns by which test scores are grouped."""
    roles = load_prepared(context.inputs["data"])
    values = slice_values(task, roles.test_numbers(), context.console)
    context.write_json(SLICES_FILE, {"columns": values})


TRUNCATION_ROWS = 10_000
"""Rows of train on which the share of truncated texts is determined, at most."""


def data_facts(plan: Plan, context: StepContext, roles: PreparedData, scored: Mapping[str, Any]) -> DataFacts:
    """Return what the report says of the data: the source, the counts, and what is unusual about them.

    ``scored``: the facts recorded when the reference was scored; empty where it was not.
    """
    info, folder = roles.info, context.inputs.get(UNLABELLED)
    unlabelled = unlabelled_info(folder) if folder else None
    return DataFacts(
        source=_source(plan.recipe.task.data),
        digest=context.records["data"].digest,
        rows={**info.counts, **({UNLABELLED: unlabelled.count} if unlabelled else {})},
        classes=info.per_class,
        documents=info.documents.get("test"),
        contradictory=info.contradictory,
        duplicates=info.duplicates,
        skipped=info.skipped + (unlabelled.skipped if unlabelled else 0),
        split_seed=plan.recipe.task.data.split_seed,
        truncated={**_truncated_of_train(plan, context, roles), **scored.get("truncated", {})},
        examples_per_row=scored.get("examples", {}).get("test"),
    )


def _truncated_of_train(plan: Plan, context: StepContext, roles: PreparedData) -> dict[str, float]:
    """The share of train's rows that the teacher's tokenizer truncates; of a sample if no step encoded all."""
    folder, rows = context.inputs.get(plan.teacher.step), roles.rows("train")
    if folder is None:
        return {}
    chosen = np.arange(0, len(rows), -(-len(rows) // TRUNCATION_ROWS))
    encoded, _ = encode_sample(rows, chosen, roles.info.task_info, TextTokenizer.load(folder))
    return {"train": encoded.truncated}


def _source(data: Data) -> str:
    """The name of the data for readers, without paths of this machine."""
    if data.hub or data.builtin:
        return data.hub or f"builtin {data.builtin}"
    return ", ".join(path.name for paths in find_files(data).values() for path in paths)
