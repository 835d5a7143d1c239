"""The documents that are searched for the answers to a role's rows: each text once, on disk, known by its number.

They are those that the role's own rows name, right or wrong, and on test also those of the recipe's corpus. Memory is
that of a digest a document, whatever the length of their texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from compress.data.loading.data_digest import extra_files, source_entries
from compress.data.loading.raw_rows import file_rows, split_rows
from compress.data.splits.row_store import RowWriter
from compress.errors import DataError
from compress.recipe.field_types import Role
from compress.recipe.schema import Task
from compress.tasks.base import Kind, RawRow, Row
from compress.tasks.parsing.columns import column_value, has_column, label_columns, text_value

COLUMN = "text"
"""Where a corpus holds its documents if it has no column called like that of the answers."""


def documents_name(role: Role) -> str:
    """What a role's documents are called on disk."""
    return f"{role}-documents"


def text_digest(words: str) -> bytes:
    """What a text is known by."""
    return hashlib.blake2b(words.encode(), digest_size=16).digest()


class DocumentWriter:
    """Writes the documents of one role and numbers them from 0, in the order in which they come."""

    def __init__(self, folder: Path, role: Role) -> None:
        self._writer = RowWriter(folder, documents_name(role))
        self._numbers: dict[bytes, int] = {}

    def number(self, words: str) -> int:
        """The number of a document, which is written when it is first seen."""
        digest = text_digest(words)
        if digest not in self._numbers:
            self._numbers[digest] = len(self._numbers)
            self._writer.add({"document": words})
        return self._numbers[digest]

    def __len__(self) -> int:
        return len(self._numbers)

    def __enter__(self) -> DocumentWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)


class RoleWriter:
    """Writes the rows of one role, and its documents where the kind searches."""

    def __init__(self, folder: Path, role: Role, kind: Kind) -> None:
        self._role, self._kind = role, kind
        self._rows = RowWriter(folder, role)
        self.documents = DocumentWriter(folder, role) if kind.searches and role != "train" else None

    def add(self, row: Row) -> list[Row]:
        """Write a row as the role keeps it; what was written is given back."""
        if not self._kind.searches:
            kept = [row]
        else:
            kept = self._kind.store_rows(row, None if self.documents is None else self.documents.number)
        for each in kept:
            self._rows.add(each)
        return kept

    def __enter__(self) -> RoleWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.__exit__(kind, error, trace)
        if self.documents is not None:
            self.documents.__exit__(kind, error, trace)


def corpus_documents(task: Task) -> Iterator[str]:
    """The texts of the recipe's corpus, in the column of the answers or in one called `text`; none may be empty."""
    for raw in _corpus_rows(task):
        words = text_value(raw.values, _column(raw, task), task, raw.where)
        if not words.strip():
            raise DataError(f"{raw.where}: the document is empty.")
        yield words


def check_corpus(task: Task) -> None:
    """Look at the first document of every file."""
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
    answers = label_columns(task)[0]
    if has_column(raw.values, answers, task):
        return answers
    if COLUMN not in raw.values:  # the message names both
        known = (*task.aliases.get(answers, ()), COLUMN)
        column_value(raw.values, answers, task.model_copy(update={"aliases": {answers: known}}), raw.where)
    return COLUMN
