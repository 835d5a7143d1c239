"""Warnings about labels, worded alike where the data are prepared and in reports."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from compress.losses import TASK_LOSSES
from compress.tasks import KINDS

CONTRADICTORY_SHARE = 0.01
"""Share of rows with a contradictory label from which a warning is given."""
SHOWN = 3
"""Classes that one sentence names."""
IMBALANCED = 20
"""A class this many times as large as another one leaves that hardly any weight in a mean over rows."""


def label_problems(
    kind_name: str,
    metric: str,
    rows: Mapping[Any, int],
    contradictory: Mapping[Any, int],
    per_class: Mapping[Any, Mapping[str, int]],
) -> Iterator[str]:
    """Yield a sentence for each role with contradictory labels, and what is unusual about the classes of train.

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
            yield f"{share} have the text of another row and another label: no model can be right on all."
    yield from _differ_in_spelling(per_class.get("train", {}))
    present = {label: count for label, count in per_class.get("train", {}).items() if count}
    if single := [label for label, count in present.items() if count == 1]:
        named = ", ".join(f"'{label}'" for label in single[:SHOWN])
        more = f" and {len(single) - SHOWN:,} more" if len(single) > SHOWN else ""
        who = "1 class has" if len(single) == 1 else f"{len(single):,} classes have"
        yield f"{who} a single row of train ({named}{more}), too few to learn from."
    several = {label: count for label, count in present.items() if count > 1}
    largest, smallest = (pick(several, key=several.__getitem__, default="") for pick in (max, min))
    if several and present[largest] > IMBALANCED * present[smallest]:
        sizes = f"'{largest}' has {present[largest]:,} rows of train, '{smallest}' {present[smallest]:,}"
        advice = "; ".join(_advice(kind_name, metric))
        yield f"The classes are imbalanced: {sizes}{advice and f'; {advice}'}."


def _differ_in_spelling(classes: Iterable[str]) -> Iterator[str]:
    """Yield a sentence where classes differ only in spaces, capitals, or a number's decimals."""
    groups = defaultdict(list)
    for label in classes:
        groups[spelling_key(label)].append(label)
    alike = [" and ".join(f"'{label}'" for label in group[:SHOWN]) for group in groups.values() if len(group) > 1]
    if alike:
        more = f"; {len(alike) - SHOWN:,} more" if len(alike) > SHOWN else ""
        shown = f"{'; '.join(alike[:SHOWN])}{more}"
        yield f"Some classes differ only in how they are written ({shown}): if they mean the same, write them alike."


def spelling_key(label: str) -> str:
    """Return what spellings of a label have in common: without case, further spaces, and the decimals of 1.0."""
    return re.sub(r"^([+-]?\d+)\.0+$", r"\1", " ".join(label.split()).casefold())


def _advice(kind_name: str, metric: str) -> Iterator[str]:
    kind = KINDS[kind_name]
    by_rows = {kind.metrics[0].name, *(each.name for each in kind.metrics if each.is_accuracy)}
    if metric in by_rows and any(each.name == "macro_f1" for each in kind.metrics):
        yield f"{metric} hardly depends on small classes, task.metric: macro_f1 weighs all alike"
    if TASK_LOSSES[kind.problem].weighted:
        yield "class_weights: balanced (in finetune and distill) makes training do so"
