"""Counts over rows while they are written: memory grows by a few numbers a row, whatever the texts."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from compress.batch_arrays import LABELLED, SOFT_LABELS
from compress.console import Console
from compress.errors import DataError, first_error, pluralize
from compress.recipe.field_types import Part, Role
from compress.storage.stored_info import Info
from compress.tasks.base import Row
from compress.tasks.kind import Kind

Indices = NDArray[np.int64]


class RowWarnings(Info):
    """What is unusual in rows, counted while they were read."""

    empty_texts: int = 0
    """Rows with a text that is empty, or white space alone."""
    skipped: int = 0
    """Rows that were left out because they do not fit the task, with `bad_rows: skip`."""
    first_skipped: str | None = None
    """The error message of the first of them."""

    def warn(self, console: Console) -> None:
        """Print a warning for each count that is not zero."""
        if self.skipped:
            console.warn(f"left out {pluralize(self.skipped, 'row')} that do not fit the task: {self.first_skipped}")
        if self.empty_texts:
            console.warn(f"{pluralize(self.empty_texts, 'row')} with an empty text.")


InfoType = TypeVar("InfoType", bound=RowWarnings)


def read_info(path: Path, kind: type[InfoType]) -> InfoType:
    """Return the description of prepared rows, or raise a DataError."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path.parent} holds no prepared data: {error.strerror}.") from error
    except ValidationError as error:
        raise DataError(f"{path} cannot be read: {first_error(error)}") from error


def write_info(path: Path, info: RowWarnings) -> None:
    """Write the description of prepared rows."""
    path.write_text(info.model_dump_json(indent=2) + "\n", encoding="utf-8")


class RowStatistics:
    """Counts over rows, which are numbered from 0 as they are added, and over those of each role."""

    def __init__(self, kind: Kind, labels: tuple[str, ...]) -> None:
        self._kind, self.labels = kind, labels
        self._input_fields = [name for name in kind.fields if name not in kind.label_fields]
        self.skipped: Counter[Part] = Counter()
        self.first_skipped: dict[Part, str] = {}
        self.forget_rows()

    def forget_rows(self) -> None:
        """Begin again with row 0, for rows in another form; what was skipped is still known."""
        self._inputs, self._labels = array("q"), array("q")
        self._classes, self._class_rows = array("i"), array("i")
        self._empty, self._guessed, self._fits = array("b"), array("b"), array("b")
        self._parts: dict[Part, Indices] = {}

    def __len__(self) -> int:
        return len(self._inputs)

    def add(self, row: Row) -> None:
        """Count a row with its label."""
        for label in self._kind.row_classes(row):
            self._classes.append(label)
            self._class_rows.append(len(self._inputs))
        self._labels.append(_digest([row.get(name) for name in self._kind.label_fields]) if self.labels else 0)
        self._guessed.append(row.get(LABELLED) is False)
        self._fits.append(True)
        self._add_fields(row)

    def add_input(self, row: Row) -> None:
        """Count a row's input, which is of no role of labelled rows."""
        self._labels.append(0)
        self._guessed.append(False)
        self._fits.append(False)
        self._add_fields(row)

    def _add_fields(self, row: Row) -> None:
        self._inputs.append(_digest([row.get(name) for name in self._input_fields]))
        self._empty.append(any(isinstance(value, str) and not value.strip() for value in row.values()))

    def fits(self) -> NDArray[np.bool_]:
        """Return which rows have a label."""
        return np.frombuffer(self._fits, np.bool_)

    def assign(self, role: Part, rows: Indices) -> None:
        """Note which rows are those of a role."""
        self._parts[role] = rows

    def skip(self, role: Part, fault: DataError) -> None:
        """Count a row of what was given for a role that does not fit."""
        self.skipped[role] += 1
        self.first_skipped.setdefault(role, fault.message)

    def describe_skipped(self, role: Part) -> str | None:
        """Return a sentence on the skipped rows of what was given for a role; None if there were none."""
        if not self.skipped[role]:
            return None
        rows = pluralize(self.skipped[role], "row")
        return f"{rows} of {role} do not fit the task and were left out, the first: {self.first_skipped[role]}"

    def count(self, role: Part) -> int:
        """Return the number of rows of a role."""
        return len(self._parts.get(role, ()))

    def empty_texts(self) -> int:
        """Return the number of rows of all roles with a text that is empty, or white space alone."""
        return self._marked(self._empty)

    def guessed(self) -> int:
        """Return the number of rows without a label, which have the most probable class of their soft labels."""
        return self._marked(self._guessed)

    def _marked(self, marks: array[int]) -> int:
        return sum(int(np.frombuffer(marks, np.bool_)[rows].sum()) for rows in self._parts.values())

    def is_varied(self, rows: Iterable[Row]) -> bool:
        """Return whether rows have at least two different targets."""
        targets: set[Hashable] = set()
        for row in rows:
            own, soft = self._kind.targets(row), row.get(SOFT_LABELS)
            targets.update(own if soft is None else [(*own, *soft)])
            if len(targets) > 1:
                return True
        return False

    def per_class(self, role: Part) -> dict[str, int]:
        """Return the rows of each class, classes without rows included."""
        names, in_role = self._kind.class_names(self.labels), np.zeros(len(self), np.bool_)
        in_role[self._parts.get(role, [])] = True
        classes, rows = self._all_classes()
        return dict(zip(names, np.bincount(classes[in_role[rows]], minlength=len(names)).tolist(), strict=True))

    def rare_classes(self, most: int) -> dict[int, list[int]]:
        """Return, by row, those of its classes that at most ``most`` rows have."""
        classes, rows = self._all_classes()
        is_rare = (np.bincount(classes) <= most)[classes]
        rare = defaultdict[int, list[int]](list)
        for row, label in zip(rows[is_rare].tolist(), classes[is_rare].tolist(), strict=True):
            rare[row].append(label)
        return rare

    def _all_classes(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the classes of all rows, one after another, and the row of each."""
        return np.frombuffer(self._classes, np.int32), np.frombuffer(self._class_rows, np.int32)

    def shared(self, role: Part, other: Part) -> int:
        """Return how many rows of ``role`` have the input of a row of ``other``, whatever their labels."""
        inputs = np.frombuffer(self._inputs, np.int64)
        return int(_contained(inputs[self._parts[role]], inputs[self._parts[other]]).sum())

    def contradictory(self, roles: Sequence[Role]) -> dict[Role, int]:
        """Return, by role, how many rows have the input of another row, of any of the roles, and not its label.

        0 without classes. The same text with two labels puts a limit on every model's score.
        """
        if not self.labels:
            return dict.fromkeys(roles, 0)
        rows = np.concatenate([self._parts[role] for role in roles])
        inputs = np.frombuffer(self._inputs, np.int64)[rows]
        ordered = np.sort(inputs)
        repeated = np.flatnonzero(_contained(inputs, ordered[1:][ordered[1:] == ordered[:-1]]))
        labels, mixed = np.frombuffer(self._labels, np.int64)[rows[repeated]], np.zeros(len(rows), np.bool_)
        _, first, text = np.unique(inputs[repeated], return_index=True, return_inverse=True)
        mixed[repeated] = (np.bincount(text, weights=labels != labels[first][text]) > 0)[text]
        ends = np.cumsum([self.count(role) for role in roles])
        return {role: int(part.sum()) for role, part in zip(roles, np.split(mixed, ends[:-1]), strict=True)}


def _contained(digests: Indices, others: Indices) -> NDArray[np.bool_]:
    """Return which digests are among ``others``; `np.isin` takes several times the memory."""
    if not len(others):
        return np.zeros(len(digests), np.bool_)
    ordered = np.sort(others)
    found: NDArray[np.bool_] = ordered[np.searchsorted(ordered[:-1], digests)] == digests
    return found


def _digest(fields: list[Any]) -> int:
    """Return a number of 64 bits that identifies these fields within this process."""
    return hash(repr(fields))
