"""The documents that are searched for a role's rows: each text once, on disk, identified by its number.

They are those that the role's own rows name, right or wrong, and on test also those of the recipe's corpus. Memory is
that of a digest per document, whatever the length of their texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from compress.data.loading.data_digest import extra_files, source_entries
from compress.data.loading.raw_rows import file_rows, split_rows
from compress.data.splits.row_store import RowWriter
from compress.errors import DataError
from compress.recipe.field_types import Role
from compress.recipe.schema import Task
from compress.tasks.base import Kind, RawRow, Row
from compress.tasks.parsing.columns import column_value, has_column, label_columns, text_value

COLUMN = "text"
"""The column of a corpus with its documents if it has none with the name of the label column."""


def documents_name(role: Role) -> str:
    """Return the name of a role's documents on disk."""
    return f"{role}-documents"


def text_digest(text: str) -> bytes:
    """Return a short digest of a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class DocumentWriter:
    """Writes the documents of one role and numbers them from 0, in the order in which they come."""

    def __init__(self, writer: RowWriter) -> None:
        self._writer = writer
        self._numbers: dict[bytes, int] = {}

    def number(self, text: str) -> int:
        """Return the number of a document, which is written when it is first seen."""
        digest = text_digest(text)
        if digest not in self._numbers:
            self._numbers[digest] = len(self._numbers)
            self._writer.add({"document": text})
        return self._numbers[digest]

    def __len__(self) -> int:
        return len(self._numbers)


class RoleWriter:
    """Writes the rows of one role, and its documents where the kind searches; ``files`` closes them."""

    def __init__(self, folder: Path, role: Role, kind: Kind, files: ExitStack) -> None:
        self._kind = kind
        self._rows = files.enter_context(RowWriter(folder, role))
        self.documents: DocumentWriter | None = None
        if kind.searches and role != "train":
            self.documents = DocumentWriter(files.enter_context(RowWriter(folder, documents_name(role))))

    def add(self, row: Row) -> list[Row]:
        """Write a row in the form that the role stores, and return what was written."""
        rows = [row]
        if self._kind.searches:
            rows = self._kind.store_rows(row, None if self.documents is None else self.documents.number)
        for stored in rows:
            self._rows.add(stored)
        return rows


def corpus_documents(task: Task) -> Iterator[str]:
    """Yield the texts of the recipe's corpus, from the label column or one named `text`; none may be empty."""
    for raw in _corpus_rows(task):
        text = text_value(raw.values, _column(raw, task), task, raw.where)
        if not text.strip():
            raise DataError(f"{raw.where}: the document is empty.")
        yield text


def check_corpus(task: Task) -> None:
    """Check the first document of every file."""
    for path in extra_files(task.data, "corpus"):
        raw = next(file_rows(path, task.data, "corpus"))
        text_value(raw.values, _column(raw, task), task, raw.where)


def _corpus_rows(task: Task) -> Iterator[RawRow]:
    if task.data.hub is not None:
        for split in source_entries(task.data, "corpus"):
            yield from split_rows(task.data, split, names=False)
    else:
        for path in extra_files(task.data, "corpus"):
            yield from file_rows(path, task.data, "corpus")


def _column(raw: RawRow, task: Task) -> str:
    label = label_columns(task)[0]
    if has_column(raw.values, label, task):
        return label
    if COLUMN not in raw.values:  # the message names both
        known = (*task.aliases.get(label, ()), COLUMN)
        column_value(raw.values, label, task.model_copy(update={"aliases": {label: known}}), raw.where)
    return COLUMN
