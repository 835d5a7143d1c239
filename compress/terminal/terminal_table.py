"""Tables for people: as a table where it fits the terminal, else a block a row. Used by ``console`` alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import rich.console
    import rich.table

Rows = Sequence[Mapping[str, Any]]

MAX_UNFOLDED = 24
"""Columns up to this width have each value on one line; wider ones may fold."""
MIN_FOLDED = 16
"""Least width of a column that folds."""
GAP = 2
"""Characters between two columns."""
PIPE_WIDTH = 200
"""Width of tables that are not written to a terminal, where folding at 80 columns would be hard to read."""


def cell(value: Any) -> str:
    """Format one value."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(item) for item in value)
    return str(value)


def fits(rows: Rows, names: Sequence[str], width: int) -> bool:
    """Return whether the columns fit: narrow ones unfolded, each wide one with at least `MIN_FOLDED` characters."""
    widths = [widest(rows, name) for name in names]
    needed = sum(width if width <= MAX_UNFOLDED else MIN_FOLDED for width in widths)
    return needed + GAP * (len(names) - 1) <= width


def widest(rows: Rows, name: str) -> int:
    """Return the length of a column's longest line or of its name."""
    lines = (line for row in rows for line in cell(row.get(name)).split("\n"))
    return max([len(name), *map(len, lines)])


def as_blocks(rows: Rows, names: Sequence[str]) -> list[str]:
    """Format rows for a narrow terminal: a block a row, a line a value; cells without a value are omitted."""
    label = max(map(len, names[1:]), default=0)
    lines = []
    for row in rows:
        lines.append(cell(row.get(names[0])))
        lines += [f"  {name:<{label}}  {cell(row[name])}" for name in names[1:] if row.get(name) is not None]
        lines.append("")
    return lines[:-1]


def as_table(rows: Rows, names: Sequence[str], right: Collection[str] = ()) -> rich.table.Table:
    """Return a rich table; numbers, and the columns that ``right`` names, are right-aligned."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False, show_edge=False, collapse_padding=True)
    for name in names:
        numbers = bool(rows) and all(isinstance(row.get(name), (int, float, type(None))) for row in rows)
        short = widest(rows, name) <= MAX_UNFOLDED
        table.add_column(name, justify="right" if numbers or name in right else "left", overflow="fold", no_wrap=short)
    for row in rows:
        table.add_row(*(plain(cell(row.get(name))) for name in names))
    return table


def rich_console(file: TextIO, width: int | None = None) -> rich.console.Console:
    """Return a rich console that interprets no markup, highlighting or emoji."""
    from rich.console import Console

    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def plain(text: str) -> Any:
    """Return text that rich does not interpret as markup: a label may be called ``[red]``."""
    from rich.text import Text

    return Text(text)
