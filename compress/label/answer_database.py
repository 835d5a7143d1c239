"""The SQLite file behind the cache of answers: its tables, its lock, and its failures as one message.

SQLite keeps what was written when the process is killed, lets other processes read meanwhile, and needs no more memory
for a million answers than for ten.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from compress.errors import CompressError

VERSION = 1
"""Stored in the file as `user_version`; 0 is a file without `cut_off_at`."""

TABLES = """\
CREATE TABLE IF NOT EXISTS answers (
    key TEXT, sample INTEGER, attempt INTEGER, answer TEXT, valid INTEGER, characters INTEGER, input_tokens INTEGER,
    output_tokens INTEGER, stated INTEGER, cut_off_at INTEGER, PRIMARY KEY (key, sample, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refusals (key TEXT PRIMARY KEY, reason TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS requests (id INTEGER PRIMARY KEY, key TEXT, input_tokens INTEGER, output_tokens INTEGER);
CREATE TEMP TABLE texts (key TEXT PRIMARY KEY, characters INTEGER) WITHOUT ROWID;
CREATE TEMP VIEW samples AS
    SELECT key, sample, max(valid) AS valid, sum(NOT valid AND cut_off_at IS NULL) AS invalid,
    ifnull(max(cut_off_at), 0) AS cut_off_at
    FROM answers GROUP BY key, sample;
"""
"""`requests` holds those without an answer: under way, or lost. `texts`, those that one command is about, lives as long
as the connection, in a temporary file."""

BUSY_SECONDS = 30.0
"""How long to wait while another process writes."""


class AnswerDatabase:
    """The file ``path``, which is made where there is none; may be used by several threads."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, Lock()
        with self._failures():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._rows = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._rows.execute("PRAGMA journal_mode = WAL")
            self._rows.execute("PRAGMA temp_store = FILE")
        with self.transaction() as rows:
            self._upgrade(rows)
        with self._failures():
            self._rows.executescript(TABLES)

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    def execute(self, query: str, *values: Any, **named: Any) -> list[Any]:
        """Return the rows of a query; what it changes is on disk when this returns."""
        with self._failures(), self._lock:
            return self._rows.execute(query, named or values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection; of what is changed with it either all is on disk afterwards, or nothing."""
        with self._failures(), self._lock:
            self._rows.execute("BEGIN IMMEDIATE")
            try:
                yield self._rows
            except BaseException:
                self._rows.execute("ROLLBACK")
                raise
            self._rows.execute("COMMIT")

    def _upgrade(self, rows: sqlite3.Connection) -> None:
        """Bring a file of an earlier version to this one."""
        ((version,),) = rows.execute("PRAGMA user_version")
        if version > VERSION:
            message = f"the cache of answers {self.path} was written by a newer version of compress."
            raise CompressError(message, hint="update compress, or name another folder in COMPRESS_CACHE")
        if version == VERSION:
            return
        if list(rows.execute("SELECT 1 FROM sqlite_master WHERE name = 'answers'")):
            rows.execute("ALTER TABLE answers ADD COLUMN cut_off_at INTEGER")
        rows.execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            hint = "COMPRESS_CACHE names another folder; answers that were paid for are in this file"
            raise CompressError(f"the cache of answers {self.path} cannot be used: {error}", hint=hint) from error
