"""How a table is drawn for people: as one where it fits the terminal, else a block a row. Used by ``console`` alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import rich.console
    import rich.table

Rows = Sequence[Mapping[str, Any]]

SHORT = 24
"""A column of at most so many characters keeps each value on one line; a longer one may fold."""
FOLDED = 16
"""Characters a line that a column which folds must be left with."""
BETWEEN = 2
"""Characters between two columns."""
PIPE = 200
"""A pipe has no width: a table folded at 80 columns would be hard to read there."""


def cell(value: Any) -> str:
    """One value as people read it in a table."""
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
    """Whether the columns find room: short ones whole, each long one at least enough to fold in."""
    wide = [widest(rows, name) for name in names]
    needed = sum(each if each <= SHORT else FOLDED for each in wide)
    return needed + BETWEEN * (len(names) - 1) <= width


def widest(rows: Rows, name: str) -> int:
    """Characters of a column's longest cell, or of its head."""
    return max(len(name), *(len(cell(row.get(name))) for row in rows)) if rows else len(name)


def blocks(rows: Rows, names: Sequence[str]) -> list[str]:
    """For a terminal too narrow for a table: a block a row, a line a value; what has no value has no line."""
    label = max(map(len, names[1:]), default=0)
    lines = []
    for row in rows:
        lines.append(cell(row.get(names[0])))
        lines += [f"  {name:<{label}}  {cell(row[name])}" for name in names[1:] if row.get(name) is not None]
        lines.append("")
    return lines[:-1]


def as_table(rows: Rows, names: Sequence[str]) -> rich.table.Table:
    """What rich draws; numbers stand to the right."""
    from rich.box import SIMPLE
    from rich.table import Table

    drawn = Table(box=SIMPLE, pad_edge=False, show_edge=False, collapse_padding=True)
    for name in names:
        numeric = bool(rows) and all(isinstance(row.get(name), (int, float, type(None))) for row in rows)
        short = widest(rows, name) <= SHORT
        drawn.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=short)
    for row in rows:
        drawn.add_row(*(plain(cell(row.get(name))) for name in names))
    return drawn


def drawing(file: TextIO, width: int | None = None) -> rich.console.Console:
    """A rich console that draws what it is given and interprets nothing in it."""
    from rich.console import Console as Drawing

    return Drawing(file=file, width=width, highlight=False, markup=False, emoji=False)


def plain(text: str) -> Any:
    """Text that rich must not read as markup: a label may be called ``[red]``."""
    from rich.text import Text

    return Text(text)
