"""A table of text cells, as the terminal, the Markdown page and the HTML page show it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from compress.report import format_numbers as fmt

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

    def without_empty(self) -> Table:
        """Drop columns that are absent in every row, and all rows if only their names remain."""
        columns = tuple(
            column
            for index, column in enumerate(self.columns)
            if index < NAMING_COLUMNS or any(row[column] != fmt.ABSENT for row in self.rows)
        )
        rows = self.rows if len(columns) > NAMING_COLUMNS else ()
        return Table(columns, rows, self.numeric & frozenset(columns), self.winner, self.sentences)


def make_table(
    rows: Iterable[Cells],
    *,
    names: int = NAMING_COLUMNS,
    left: Collection[str] = (),
    sentences: Collection[str] = (),
    winner: int | None = None,
) -> Table:
    """Make a table whose columns are the keys of its rows, in the order in which they occur.

    Args:
        rows: cells by column; a missing one is shown as absent.
        names: how many of the first columns name a row; the others hold numbers.
        left: columns of words among the others.
        sentences: columns of words that may break into lines.
        winner: the index of the row to highlight.
    """
    given = tuple(rows)
    columns = tuple(dict.fromkeys(name for row in given for name in row))
    numeric = frozenset(columns[names:]) - set(left) - set(sentences)
    filled = tuple({column: row.get(column, fmt.ABSENT) for column in columns} for row in given)
    return Table(columns, filled, numeric, winner, frozenset(sentences))
