"""Counts over rows while they are written: memory grows by sixteen bytes a row, whatever the texts."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import ValidationError

from compress.batch_arrays import EXTRA_NAMES, LABELLED, SOFT_LABELS
from compress.console import Console
from compress.errors import DataError, first_error, pluralize
from compress.recipe.field_types import Part, Role
from compress.storage.stored_info import Info
from compress.tasks.base import Row
from compress.tasks.kind import Kind


class RowWarnings(Info):
    """What is unusual in rows, counted while they were read."""

    empty_texts: int = 0
    """Rows whose text, or first text of a pair, is empty."""
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
    """Counts over the rows of each role."""

    def __init__(self, kind: Kind, labels: tuple[str, ...]) -> None:
        self._kind, self.labels = kind, labels
        self._inputs: dict[Part, array[int]] = defaultdict(lambda: array("Q"))
        self._labels: dict[Part, array[int]] = defaultdict(lambda: array("Q"))
        self._targets: dict[Part, set[Hashable]] = defaultdict(set)
        self._classes: dict[Part, Counter[int]] = defaultdict(Counter)
        self.empty_texts: Counter[Part] = Counter()
        self.guessed = 0
        """Rows without a label, which have the most probable class of their soft labels instead."""
        self.skipped: Counter[Part] = Counter()
        self.first_skipped: dict[Part, str] = {}

    def add(self, role: Part, row: Row) -> None:
        """Count a row with its label."""
        self.add_input(role, row)
        if not self.is_varied(role):
            targets, soft = self._kind.targets(row), row.get(SOFT_LABELS)
            self._targets[role].update(targets if soft is None else [(*targets, *soft)])
        if self.labels:
            self._labels[role].append(_digest({name: row.get(name) for name in self._kind.label_fields}))
        self._classes[role].update(self._kind.row_classes(row))
        self.guessed += row.get(LABELLED) is False

    def add_input(self, role: Part, row: Row) -> None:
        """Count a row's input."""
        left_out = {*self._kind.label_fields, *EXTRA_NAMES}
        self._inputs[role].append(_digest({name: value for name, value in row.items() if name not in left_out}))
        self.empty_texts[role] += "" in row.values()

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
        return len(self._inputs[role])

    def is_varied(self, role: Part) -> bool:
        """Return whether the rows of a role have at least two different targets."""
        return len(self._targets[role]) > 1

    def per_class(self, role: Part) -> dict[str, int]:
        """Return the rows of each class, classes without rows included."""
        names = self._kind.class_names(self.labels)
        return {name: self._classes[role][index] for index, name in enumerate(names)}

    def shared(self, role: Part, other: Part) -> int:
        """Return how many rows of ``role`` have the input of a row of ``other``, whatever their labels."""
        return int(np.isin(np.array(self._inputs[role]), np.array(self._inputs[other])).sum())

    def contradictory(self, roles: Sequence[Role]) -> dict[Role, int]:
        """Return, by role, how many rows have the input of another row, of any of the roles, and not its label.

        0 without classes. The same text with two labels puts a limit on every model's score.
        """
        if not self.labels:
            return dict.fromkeys(roles, 0)
        inputs, labels = (
            np.concatenate([np.array(digests[role], dtype=np.uint64) for role in roles])
            for digests in (self._inputs, self._labels)
        )
        _, first, text = np.unique(inputs, return_index=True, return_inverse=True)
        mixed = (np.bincount(text, weights=labels != labels[first][text]) > 0)[text]
        ends = np.cumsum([self.count(role) for role in roles])
        return {role: int(part.sum()) for role, part in zip(roles, np.split(mixed, ends[:-1]), strict=True)}


def _digest(fields: Row) -> int:
    """Return a number of 64 bits that identifies these fields."""
    digest = hashlib.blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
