"""A sequence of rows that are made on access: none is held in memory, however many there are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from compress.tasks.base import Row


class LazyRows(Sequence[Row]):
    """A sequence defined by its length and by how each row is made."""

    @abstractmethod
    def row(self, index: int) -> Row:
        """Return the row at an index from 0."""

    def __getitem__(self, index: Any) -> Any:
        """Return the row at an index, or a list of those of a slice."""
        indices = range(len(self))[index]
        return [self.row(number) for number in indices] if isinstance(indices, range) else self.row(indices)
