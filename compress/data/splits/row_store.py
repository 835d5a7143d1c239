"""Canonical rows on disk: one JSON object per line and an index of where each line starts.

People can read the file, any kind's fields fit in it, and it is memory-mapped: millions of rows take no memory until
they are read, and little then, since pages that were read are released. Every row is stored once: a role is an array of
the numbers of its rows. A student is trained on rows of train and then on rows without a label, one after the other.
Documents that are searched for a role's rows are stored once each, and named by their numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from array import array
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import LABELLED, SOFT_LABELS
from compress.errors import DataError
from compress.model_folder.model_info import TaskInfo
from compress.recipe.field_types import Role
from compress.storage.file_digests import file_digest
from compress.storage.file_names import STEPS_FOLDER
from compress.storage.mapped_arrays import release_pages
from compress.tasks import kind_of
from compress.tasks.base import LazyRows, Row
from compress.tasks.kind import Kind

ROWS = "rows"
"""The name under which the rows are written that `write_subset` chooses from."""
RELEASE_AFTER = 2**22
"""Bytes that are read before their pages are released."""

_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def rows_file(folder: Path, name: str) -> Path:
    """Return the path of the rows of a name."""
    return folder / f"{name}.jsonl"


def index_file(folder: Path, name: str) -> Path:
    """Return the path of the starts of a name's lines."""
    return folder / f"{name}.index.npy"


def subset_file(folder: Path, name: str) -> Path:
    """Return the path of the numbers of a name's rows among those of `ROWS`."""
    return folder / f"{name}.rows.npy"


def write_subset(folder: Path, name: str, numbers: NDArray[np.int64]) -> None:
    """Give the rows of `ROWS` with these numbers, from 0, a name of their own."""
    np.save(subset_file(folder, name), numbers)


def remove_rows(folder: Path, name: str) -> None:
    """Remove the rows of a name, which no other name has a subset of."""
    for path in (rows_file(folder, name), index_file(folder, name)):
        path.unlink()


class RowWriter:
    """Writes the rows of one name; the index is written when it is closed."""

    def __init__(self, folder: Path, name: str) -> None:
        self._index = index_file(folder, name)
        self._stream = rows_file(folder, name).open("wb")
        self._starts = array("q", [0])

    def add(self, row: Row) -> Row:
        """Append a row, and return it."""
        line = _to_json(row).encode() + b"\n"
        self._stream.write(line)
        self._starts.append(self._starts[-1] + len(line))
        return row

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stream.close()
        if error is None:
            np.save(self._index, np.frombuffer(self._starts, np.int64))


class StoredRows(LazyRows):
    """The rows of one name, parsed on access."""

    def __init__(self, folder: Path, name: str, without: Collection[str] = ()) -> None:
        """Open the rows that were written under ``name``, or its subset of `ROWS`; they lack the fields ``without``."""
        self._numbers: NDArray[np.int64] | None = None
        self._without = without
        try:
            if subset_file(folder, name).exists():
                self._numbers, name = np.load(subset_file(folder, name), mmap_mode="r"), ROWS
            self._path = path = rows_file(folder, name)
            self._starts: NDArray[np.int64] = np.load(index_file(folder, name), mmap_mode="r")
            with path.open("rb") as stream:
                size = path.stat().st_size
                self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except (OSError, ValueError) as error:
            raise DataError(f"the prepared rows of {name} in {folder} cannot be read: {error}.") from error
        if len(self._bytes) != int(self._starts[-1]):
            raise DataError(f"{path} does not have the length that its index gives: it was changed or truncated.")
        self._unreleased = 0

    def __len__(self) -> int:
        return len(self._starts) - 1 if self._numbers is None else len(self._numbers)

    @property
    def steps(self) -> Path | None:
        """The folder of a run's steps where the rows are one's result; None elsewhere."""
        steps = self._path.parent.parent
        return steps if steps.name == STEPS_FOLDER else None

    def digest(self) -> str:
        """Return a digest of all rows."""
        digest = file_digest(self._path)
        if self._numbers is None:
            return digest
        return hashlib.sha256(digest.encode() + self._numbers.tobytes()).hexdigest()

    def row(self, index: int) -> Row:
        """Return one line, parsed."""
        number = index if self._numbers is None else int(self._numbers[index])
        line = self._bytes[int(self._starts[number]) : int(self._starts[number + 1])]
        self._unreleased += len(line)
        if self._unreleased > RELEASE_AFTER and not isinstance(self._bytes, bytes):
            release_pages(self._bytes)
            self._unreleased = 0
        row: Row = json.loads(line)
        return {name: value for name, value in row.items() if name not in self._without} if self._without else row


COPY_OF = "copy_of"
"""The field of an augmented row with the index of the row of train that it is a changed copy of."""


class Origin(NamedTuple):
    """Where a training row comes from."""

    of: Literal["train", "unlabelled", "augmented"]
    row: int
    """From 0; for an augmented row, that of the row of train it is a copy of."""


def train_origin(index: int) -> Origin:
    """Return the origin of a row where nothing is concatenated."""
    return Origin("train", index)


class SelectedRows(LazyRows):
    """Some of other rows, by their numbers."""

    def __init__(self, rows: Sequence[Row], numbers: NDArray[np.int64]) -> None:
        self._rows, self._numbers = rows, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def row(self, index: int) -> Row:
        """Return the row of a number."""
        row: Row = self._rows[int(self._numbers[index])]
        return row


class ConcatenatedRows(LazyRows):
    """Rows of train before rows without a label: all have the same fields, and `labelled`."""

    def __init__(self, train: Sequence[Row], others: Sequence[Sequence[Row]], task: TaskInfo) -> None:
        """``others`` follow train in their order: unlabelled rows before augmented ones."""
        self._parts = [train, *(part for part in others if len(part))]
        self._task, self._kind = task, kind_of(task)
        soft = train[0].get(SOFT_LABELS)
        self._no_soft_labels = {} if soft is None else {SOFT_LABELS: [math.nan] * len(soft)}

    @property
    def train(self) -> Sequence[Row]:
        """The rows of train."""
        return self._parts[0]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def steps(self) -> Path | None:
        """The folder of a run's steps where all parts are results of one; None elsewhere."""
        folders = {part.steps if isinstance(part, StoredRows) else None for part in self._parts}
        return folders.pop() if len(folders) == 1 else None

    def digest(self) -> str:
        """Return a digest of all rows, which have to be results of a run's steps."""
        parts = (part.digest() for part in self._parts if isinstance(part, StoredRows))
        return hashlib.sha256(" ".join(["concatenated", *parts]).encode()).hexdigest()

    def origin(self, index: int) -> Origin:
        """Return the origin of a row."""
        train = len(self._parts[0])
        if index < train:
            return train_origin(index)
        copied = self.row(index).get(COPY_OF)
        return Origin("unlabelled", index - train) if copied is None else Origin("augmented", copied)

    def row(self, index: int) -> Row:
        """Return a row of train as it is, or a row without a label with a placeholder."""
        if index < len(self._parts[0]):
            return {LABELLED: True, **self._parts[0][index]}
        for part in self._parts:
            if index < len(part):
                row = part[index]
                placeholder = self._kind.placeholder_label(row, self._task)
                return {**placeholder, **row, **self._no_soft_labels, LABELLED: False}
            index -= len(part)
        raise IndexError(index)


def documents_name(role: Role) -> str:
    """Return the name of a role's documents on disk."""
    return f"{role}-documents"


def text_digest(text: str) -> bytes:
    """Return a short digest of a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class SearchedRows:
    """Writes the rows of one role of a kind that searches, and the role's documents; ``files`` closes them."""

    def __init__(self, folder: Path, role: Role, kind: Kind, files: ExitStack) -> None:
        self._kind = kind
        self._rows = files.enter_context(RowWriter(folder, role))
        self._numbers: dict[bytes, int] = {}
        self._documents = None if role == "train" else files.enter_context(RowWriter(folder, documents_name(role)))

    def number(self, text: str) -> int:
        """Return the number of a document, from 0 in the order in which they come; it is written when first seen."""
        digest = text_digest(text)
        if digest not in self._numbers and self._documents is not None:
            self._numbers[digest] = len(self._numbers)
            self._documents.add({"document": text})
        return self._numbers[digest]

    def add(self, row: Row) -> list[Row]:
        """Write a row in the form that the role stores, and return what was written."""
        rows = self._kind.store_rows(row, None if self._documents is None else self.number)
        for stored in rows:
            self._rows.add(stored)
        return rows
