"""Counts over rows while they are written: memory grows by eight bytes a row, whatever the texts."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import EXTRA_NAMES
from compress.console import Console
from compress.errors import DataError
from compress.model_info import Info
from compress.recipe.field_types import Part
from compress.tasks.base import Kind, Row


class RowWarnings(Info):
    """What was found amiss in rows while they were read."""

    empty_texts: int = 0
    """Rows whose text, or first text of a pair, is empty."""
    skipped: int = 0
    """Rows that were left out because they do not fit the task, as `bad_rows: skip` asks."""
    first_skipped: str | None = None
    """Where the first of them stands and what is wrong with it."""

    def warn(self, console: Console) -> None:
        """Tell what of it there is."""
        if self.skipped:
            told = "row does not fit the task and is" if self.skipped == 1 else "rows do not fit the task and are"
            console.warn(f"{self.skipped:,} {told} left out; the first: {self.first_skipped}")
        if self.empty_texts:
            console.warn(f"{self.empty_texts:,} {'row has' if self.empty_texts == 1 else 'rows have'} an empty text.")


class RowStatistics:
    """What the rows of each role have been so far."""

    def __init__(self, kind: Kind, labels: tuple[str, ...]) -> None:
        self._kind = kind
        self._labels = labels
        self._texts: dict[Part, array[int]] = defaultdict(lambda: array("Q"))
        self._apart: dict[Part, set[Hashable]] = defaultdict(set)
        self._classes: dict[Part, Counter[int]] = defaultdict(Counter)
        self.empty_texts: Counter[Part] = Counter()
        self.guessed = 0
        """Rows whose label is but the likeliest class of their soft labels."""
        self.skipped: Counter[Part] = Counter()
        self.first_skipped: dict[Part, str] = {}

    def add(self, role: Part, row: Row) -> None:
        """Count a row with its answer."""
        self.add_asked(role, row)
        if not self.varied(role):
            told, soft = self._kind.targets(row), row.get("soft_labels")
            self._apart[role].update(told if soft is None else [(*told, *soft)])
        self._classes[role].update(self._kind.row_classes(row))
        self.guessed += row.get("labelled") is False

    def add_asked(self, role: Part, row: Row) -> None:
        """Count what a row asks."""
        left_out = {*self._kind.label_fields, *EXTRA_NAMES}
        asked = json.dumps({name: value for name, value in row.items() if name not in left_out}, sort_keys=True)
        digest = hashlib.blake2b(asked.encode(), digest_size=8).digest()
        self._texts[role].append(int.from_bytes(digest, "little"))
        self.empty_texts[role] += "" in row.values()

    def skip(self, role: Part, fault: DataError) -> None:
        """Count a row of what was given for a role that does not fit."""
        self.skipped[role] += 1
        self.first_skipped.setdefault(role, fault.message)

    def left_out(self, role: Part) -> str | None:
        """What became of the rows of what was given for a role, none of which is left; None where there were none."""
        count = self.skipped[role]
        if not count:
            return None
        rows = f"the {count:,} rows" if count > 1 else "the one row"
        return f"{rows} of {role} that do not fit the task were left out, the first: {self.first_skipped[role]}"

    def count(self, role: Part) -> int:
        """Rows of a role."""
        return len(self._texts[role])

    def varied(self, role: Part) -> bool:
        """Whether the rows of a role have anything to be told apart."""
        return len(self._apart[role]) > 1

    def per_class(self, role: Part) -> dict[str, int]:
        """Rows of each class, those with none included."""
        names = self._kind.class_names(self._labels)
        return {name: self._classes[role][index] for index, name in enumerate(names)}

    def shared(self, role: Part, other: Part) -> int:
        """How many rows of ``role`` ask what a row of ``other`` asks too, whatever their answers."""
        return int(np.isin(self._digests(role), self._digests(other)).sum())

    def _digests(self, role: Part) -> NDArray[np.uint64]:
        return np.array(self._texts[role], dtype=np.uint64)
