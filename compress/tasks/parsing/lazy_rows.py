"""Rows that are made when they are looked at: nothing is kept in memory, however many there are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import overload

from compress.tasks.base import Row


class LazyRows(Sequence[Row]):
    """A sequence that knows how many rows it has and how to make each."""

    @abstractmethod
    def row(self, place: int) -> Row:
        """The row at a place from 0."""

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self.row(place) for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        return self.row(place)
