"""Counts over rows while they are written: memory grows by eight bytes a row, whatever the texts."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError
from compress.recipe.forms import Role
from compress.tasks.kind import Kind, Row


class Tally:
    """What the rows of each role have been so far."""

    def __init__(self, kind: Kind, labels: tuple[str, ...]) -> None:
        self._kind = kind
        self._labels = labels
        self._texts: dict[Role, array[int]] = defaultdict(lambda: array("Q"))
        self._apart: dict[Role, set[Hashable]] = defaultdict(set)
        self._classes: dict[Role, Counter[int]] = defaultdict(Counter)
        self.empty_texts = 0
        self.skipped: Counter[Role] = Counter()
        self.first_skipped: dict[Role, str] = {}

    def add(self, role: Role, row: Row) -> None:
        """Count a row."""
        answers = self._kind.answer_fields
        asked = json.dumps({name: value for name, value in row.items() if name not in answers}, sort_keys=True)
        digest = hashlib.blake2b(asked.encode(), digest_size=8).digest()
        self._texts[role].append(int.from_bytes(digest, "little"))
        if not self.varied(role):
            self._apart[role].update(self._kind.told_apart(row))
        self._classes[role].update(self._kind.classes(row))
        self.empty_texts += "" in row.values()

    def skip(self, role: Role, fault: DataError) -> None:
        """Count a row of what was given for a role that does not fit."""
        self.skipped[role] += 1
        self.first_skipped.setdefault(role, fault.message)

    def count(self, role: Role) -> int:
        """Rows of a role."""
        return len(self._texts[role])

    def varied(self, role: Role) -> bool:
        """Whether the rows of a role have anything to be told apart."""
        return len(self._apart[role]) > 1

    def per_class(self, role: Role) -> dict[str, int]:
        """Rows of each class, those with none included."""
        names = self._kind.class_names(self._labels)
        return {name: self._classes[role][index] for index, name in enumerate(names)}

    def shared(self, role: Role, other: Role) -> int:
        """How many rows of ``role`` ask what a row of ``other`` asks too, whatever their answers."""
        return int(np.isin(self._digests(role), self._digests(other)).sum())

    def _digests(self, role: Role) -> NDArray[np.uint64]:
        return np.array(self._texts[role], dtype=np.uint64)
