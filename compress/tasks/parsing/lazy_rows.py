"""A sequence of rows that are made on access: none is held in memory, however many there are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import overload

from compress.tasks.example_types import Row


class LazyRows(Sequence[Row]):
    """A sequence defined by its length and by how each row is made."""

    @abstractmethod
    def row(self, index: int) -> Row:
        """Return the row at an index from 0."""

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self.row(number) for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(index)
        return self.row(number)
