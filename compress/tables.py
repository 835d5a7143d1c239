"""A table of text cells, as the terminal, pages of Markdown and pages of HTML show it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from compress import format_numbers as fmt

Cells = Mapping[str, str]
NAMING_COLUMNS = 2
"""Columns that name a row: model and variant."""


@dataclass(frozen=True)
class Table:
    """Named columns and rows of text; ``winner`` is the index of the row to highlight."""

    columns: tuple[str, ...]
    rows: tuple[Cells, ...]
    numeric: frozenset[str] = frozenset()
    """Columns aligned to the right."""
    winner: int | None = None
    sentences: frozenset[str] = frozenset()
    """Columns whose text may break into lines."""
    title: str = ""
    lines: tuple[str, ...] = ()
    """Text under it."""

    def without_empty(self, names: int = NAMING_COLUMNS) -> Table:
        """Drop columns that are absent in every row, and all rows if only their names remain."""
        columns = tuple(
            column
            for index, column in enumerate(self.columns)
            if index < names or any(row[column] != fmt.ABSENT for row in self.rows)
        )
        rows = self.rows if len(columns) > names else ()
        return replace(self, columns=columns, rows=rows, numeric=self.numeric & frozenset(columns))


def make_table(
    rows: Iterable[Cells],
    *,
    names: int = NAMING_COLUMNS,
    left: Collection[str] = (),
    sentences: Collection[str] = (),
    winner: int | None = None,
    title: str = "",
    lines: Iterable[str] = (),
) -> Table:
    """Make a table whose columns are the keys of its rows, in the order in which they occur.

    Args:
        rows: cells by column; a missing one is shown as absent.
        names: how many of the first columns name a row; the others hold numbers.
        left: columns of words among the others.
        sentences: columns of words that may break into lines.
        winner: the index of the row to highlight.
        title: above the table.
        lines: text under it.
    """
    given = tuple(rows)
    columns = tuple(dict.fromkeys(name for row in given for name in row))
    numeric = frozenset(columns[names:]) - set(left) - set(sentences)
    filled = tuple({column: row.get(column, fmt.ABSENT) for column in columns} for row in given)
    return Table(columns, filled, numeric, winner, frozenset(sentences), title, tuple(lines))


def markdown_table(table: Table, *, escape: bool = True) -> str:
    """Return a table as Markdown, with the winner's row in bold.

    Args:
        table: what to show.
        escape: False if its cells are Markdown already.
    """
    lines = [table.columns, tuple("---:" if column in table.numeric else "---" for column in table.columns)]
    for index, row in enumerate(table.rows):
        strong = "**" if index == table.winner else ""
        cells = (markdown_cell(row[column]) if escape else row[column] for column in table.columns)
        lines.append(tuple(f"{strong}{cell}{strong}" for cell in cells))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def markdown_cell(text: str) -> str:
    """Escape text so that it stays within its table cell and is not read as markup."""
    for sign in ("\\", "|", "*", "_", "`", "<"):
        text = text.replace(sign, "\\" + sign)
    text = text.replace("](", "]\\(")  # a link
    return " ".join(text.split())
