"""The page of runs side by side, and the page of the rows whose answers changed, which holds texts of the data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compress.model_folder.model_info import TaskInfo
from compress.report.compare_runs import Comparison
from compress.report.pages.render import page_environment, page_script, script_hash
from compress.report.pages.rows_page import MOST_CHARACTERS, MOST_ROWS, MOST_TOGETHER, how_many_fit, shown_texts
from compress.tables import Table
from compress.tasks.base import Array, Row
from compress.tasks.kind import Kind

CHANGES = ("now wrong", "now right", "both wrong", "both right")
"""What became of a row, in the order in which rows are shown."""


@dataclass(frozen=True)
class ChangedRow:
    """A row that two winners answer differently."""

    row: int
    texts: tuple[str, ...]
    label: str
    answers: tuple[str, str]
    change: str
    """One of `CHANGES`; `changed` where answers are neither right nor wrong."""


@dataclass(frozen=True)
class ChangedRows:
    """The rows whose answers changed between two runs on one target."""

    names: tuple[str, str]
    target: str
    changed: int
    rows: tuple[ChangedRow, ...]


def changed_rows(
    kind: Kind,
    task: TaskInfo,
    rows: Sequence[Row],
    gold: Array,
    before: Array,
    after: Array,
    *,
    names: tuple[str, str],
    target: str,
) -> ChangedRows:
    """Return the rows whose answers differ, those first that became wrong; in all at most `MOST_ROWS` of them."""
    same = kind.same_decision(after, before)
    distances = kind.distance(after, before)
    if same is None:
        same = np.ones(len(gold), dtype=np.bool_) if distances is None else distances == 0
    right = [kind.correct(answers, gold) for answers in (before, after)]
    chosen = np.flatnonzero(~same)
    if right[0] is not None and right[1] is not None:
        was, now = right[0][chosen], right[1][chosen]
        states = np.where(now, np.where(was, "both right", "now right"), np.where(was, "now wrong", "both wrong"))
        order = np.argsort([CHANGES.index(each) for each in states], kind="stable")
    else:
        states = np.full(len(chosen), "changed")
        order = np.arange(len(chosen)) if distances is None else np.argsort(-distances[chosen], kind="stable")
    order = order[:MOST_ROWS]
    order = order[: how_many_fit(kind, (rows[index] for index in chosen[order].tolist()))]
    shown, shown_states = chosen[order], states[order]
    own = [rows[index] for index in shown.tolist()]
    cells = zip(
        shown.tolist(),
        own,
        kind.describe_gold_in_full(gold[shown], own, task),
        kind.describe_in_full(before[shown], own, task),
        kind.describe_in_full(after[shown], own, task),
        shown_states.tolist(),
        strict=True,
    )
    return ChangedRows(
        names=names,
        target=target,
        changed=len(chosen),
        rows=tuple(
            ChangedRow(index, shown_texts(kind.to_input(row)), label, (first, second), state)
            for index, row, label, first, second, state in cells
        ),
    )


def comparison_page(comparison: Comparison, tables: Sequence[Table], *, has_rows: bool) -> str:
    """Return the page of a comparison; ``has_rows``: beside that of the rows whose answers changed."""
    page = page_environment(escape=True).get_template("comparison.html.j2")
    return page.render(comparison=comparison, tables=tables, has_rows=has_rows)


def rows_page(names: Sequence[str], changed: Sequence[ChangedRows]) -> str:
    """Return the page of the rows whose answers changed."""
    script = page_script("table_filter.js")
    page = page_environment(escape=True).get_template("changed_rows.html.j2")
    settings = {"names": names, "changed": changed, "most": MOST_ROWS, "most_characters": MOST_CHARACTERS}
    settings |= {"most_together": MOST_TOGETHER}
    return page.render(**settings, script=script, script_hash=script_hash(script))
