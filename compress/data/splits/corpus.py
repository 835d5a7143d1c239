"""The documents that are searched for a role's rows: each text once, on disk, identified by its number.

They are those that the role's own rows name, right or wrong, and on test also those of the recipe's corpus. Memory is
that of a digest per document, whatever the length of their texts.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path

from compress.batch_arrays import EXTRA_NAMES
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


class RoleWriter:
    """Writes the rows of one role, and its documents where the kind searches; ``files`` closes them."""

    def __init__(self, folder: Path, role: Role, kind: Kind, files: ExitStack) -> None:
        self._kind, self._role = kind, role
        self._rows = files.enter_context(RowWriter(folder, role))
        self.searches = kind.searches and role != "train"
        """Whether the role has documents, numbered from 0 in the order in which they come."""
        self._numbers: dict[bytes, int] = {}
        if self.searches:
            self._documents = files.enter_context(RowWriter(folder, documents_name(role)))

    def number(self, text: str) -> int:
        """Return the number of a document, which is written when it is first seen."""
        digest = text_digest(text)
        if digest not in self._numbers:
            self._numbers[digest] = len(self._numbers)
            self._documents.add({"document": text})
        return self._numbers[digest]

    def add(self, row: Row) -> list[Row]:
        """Write a row in the form that the role stores, and return what was written.

        Rows of select and test are scored by their true label alone.
        """
        if self._role != "train":
            row = {name: value for name, value in row.items() if name not in EXTRA_NAMES}
        number = self.number if self.searches else None
        rows = self._kind.store_rows(row, number) if self._kind.searches else [row]
        for stored in rows:
            self._rows.add(stored)
        return rows
