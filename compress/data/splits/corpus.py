"""The documents that are searched for a role's rows: each text once, on disk, identified by its number.

They are those that the role's own rows name, right or wrong, and on test also those of the recipe's corpus. Memory is
that of a digest per document, whatever the length of their texts.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path

from compress.data.splits.row_store import RowWriter
from compress.recipe.field_types import Role
from compress.tasks.base import Row
from compress.tasks.kind import Kind


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
