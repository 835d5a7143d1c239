"""Warnings about labels, worded alike where the data are prepared and in reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from compress.losses import TASK_LOSSES
from compress.tasks import KINDS

CONTRADICTORY_SHARE = 0.01
"""Share of rows with a contradictory label from which a warning is given."""
IMBALANCED = 20
"""A class this many times as large as another one leaves that hardly any weight in a mean over rows."""


def label_problems(
    kind_name: str,
    metric: str,
    rows: Mapping[Any, int],
    contradictory: Mapping[Any, int],
    per_class: Mapping[Any, Mapping[str, int]],
) -> Iterator[str]:
    """Yield a sentence for each role with contradictory labels, and one where classes of train are imbalanced.

    Args:
        kind_name: of the task.
        metric: the primary metric.
        rows: by role, the number of rows.
        contradictory: by role, the rows whose text another one has with another label.
        per_class: by role and class, the number of rows.
    """
    for role, count in contradictory.items():
        if count > CONTRADICTORY_SHARE * rows[role]:
            share = f"{count:,} of {rows[role]:,} {role} rows ({count / rows[role]:.1%})"
            yield f"{share} have the text of another {role} row and another label: no model can be right on all."
    present = {label: count for label, count in per_class.get("train", {}).items() if count}
    largest, smallest = (pick(present, key=present.__getitem__, default="") for pick in (max, min))
    if present and present[largest] > IMBALANCED * present[smallest]:
        sizes = f"'{largest}' has {present[largest]:,} rows of train, '{smallest}' {present[smallest]:,}"
        advice = "; ".join(_advice(kind_name, metric))
        yield f"The classes are imbalanced: {sizes}{advice and f'; {advice}'}."


def _advice(kind_name: str, metric: str) -> Iterator[str]:
    kind = KINDS[kind_name]
    by_rows = {kind.metrics[0].name, *(each.name for each in kind.metrics if each.is_accuracy)}
    if metric in by_rows and any(each.name == "macro_f1" for each in kind.metrics):
        yield f"{metric} hardly depends on small classes, task.metric: macro_f1 weighs all alike"
    if TASK_LOSSES[kind.problem].weighted:
        yield "class_weights: balanced (in finetune and distill) makes training do so"
