"""A table of words, as the terminal, the Markdown page and the HTML page show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compress.report.format_numbers import ABSENT

Cells = Mapping[str, str]
NAMING = 2
"""Columns that name a row: model and variant."""


@dataclass(frozen=True)
class Table:
    """Named columns and rows of words; ``winner`` is the number of the row to point out."""

    columns: tuple[str, ...]
    rows: tuple[Cells, ...]
    numeric: frozenset[str] = frozenset()
    """Columns that are set to the right."""
    winner: int | None = None
    texts: frozenset[str] = frozenset()
    """Columns of sentences, which may break into lines."""

    def without_empty(self) -> Table:
        """Without columns that say nothing in any row; without rows where no others are left."""
        kept = tuple(
            column
            for place, column in enumerate(self.columns)
            if place < NAMING or any(row[column] != ABSENT for row in self.rows)
        )
        rows = self.rows if len(kept) > NAMING else ()
        return Table(kept, rows, self.numeric & frozenset(kept), self.winner, self.texts)
