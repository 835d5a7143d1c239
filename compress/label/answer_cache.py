"""Every answer that was paid for, in one database on disk: no text is asked about twice.

A record is written when its answer arrives and never changed. SQLite keeps what was written when the process is killed,
lets other processes read meanwhile, and needs no more memory for a million answers than for ten.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from compress.errors import CompressError
from compress.storage.cache_folder import cache_folder

TABLES = """\
CREATE TABLE IF NOT EXISTS answers (
    key TEXT, sample INTEGER, attempt INTEGER, answer TEXT, valid INTEGER, characters INTEGER,
    input_tokens INTEGER, output_tokens INTEGER, stated INTEGER, PRIMARY KEY (key, sample, attempt)
) WITHOUT ROWID;
CREATE TEMP TABLE texts (key TEXT PRIMARY KEY, characters INTEGER) WITHOUT ROWID;
"""
"""`texts` lives as long as the connection, in a temporary file: the texts that one command is about."""

BUSY_SECONDS = 30.0
"""How long to wait while another process writes."""


@dataclass(frozen=True)
class Answer:
    """One answer of the service, valid or not, with what it counted."""

    text: str
    valid: bool
    input_tokens: int
    output_tokens: int
    stated: bool
    """Whether the service stated the tokens; otherwise they are an upper bound."""


@dataclass(frozen=True)
class Usage:
    """What the texts of a command have used so far."""

    answers: int
    """Samples with a valid answer."""
    finished: int
    """Samples that are not asked for any more: answered, or invalid too often."""
    input_tokens: int
    output_tokens: int
    stated: bool
    """Whether the service stated all of these."""
    characters: int
    """Of the prompts that were sent, for the number of tokens to a character."""


def request_key(parts: Any) -> str:
    """Return the digest of what decides an answer: address, model, messages, labels, temperature."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def answers_file() -> Path:
    """Return the file that holds the answers of all services."""
    return cache_folder() / "answers.sqlite"


class AnswerCache:
    """The answers in ``path``; may be used by several threads."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, Lock()
        with self._failures():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._rows = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._rows.execute("PRAGMA journal_mode = WAL")
            self._rows.execute("PRAGMA temp_store = FILE")
            self._rows.executescript(TABLES)

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    def add_text(self, key: str, characters: int) -> None:
        """Note that this command is about a text, whose prompt has so many characters."""
        self._execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", key, characters)

    def count_texts(self) -> tuple[int, int]:
        """Return the number of different texts, and the characters of their prompts together."""
        ((count, characters),) = self._execute("SELECT count(*), total(characters) FROM texts")
        return count, int(characters)

    def add(self, key: str, sample: int, attempt: int, characters: int, answer: Answer) -> None:
        """Store an answer; it is on disk when this returns."""
        counts = answer.input_tokens, answer.output_tokens, int(answer.stated)
        values = key, sample, attempt, answer.text, int(answer.valid), characters, *counts
        self._execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *values)

    def valid_answers(self, key: str, samples: int) -> list[str]:
        """Return the valid answers to a text, by sample."""
        query = "SELECT answer FROM answers WHERE key = ? AND sample < ? AND valid ORDER BY sample, attempt"
        return [text for (text,) in self._execute(query, key, samples)]

    def missing_samples(self, key: str, samples: int, attempts: int) -> list[tuple[int, int]]:
        """Return the samples to ask for, each with the number of invalid answers that there are."""
        query = "SELECT sample, max(valid), max(attempt) + 1 FROM answers WHERE key = ? GROUP BY sample"
        known = {sample: (valid, count) for sample, valid, count in self._execute(query, key)}
        states = [(sample, *known.get(sample, (0, 0))) for sample in range(samples)]
        return [(sample, count) for sample, valid, count in states if not valid and count < attempts]

    def usage(self, samples: int, attempts: int) -> Usage:
        """Return what the texts of this command have used, whichever command paid for it."""
        query = """SELECT total(valid), total(valid OR attempt = ? - 1), total(input_tokens), total(output_tokens),
            min(stated), total(answers.characters) FROM answers JOIN texts USING (key) WHERE sample < ?"""
        ((valid, finished, given, made, stated, characters),) = self._execute(query, attempts, samples)
        return Usage(int(valid), int(finished), int(given), int(made), stated != 0, int(characters))

    def example_invalid(self) -> str | None:
        """Return one of the invalid answers to the texts of this command."""
        query = "SELECT answer FROM answers JOIN texts USING (key) WHERE NOT valid LIMIT 1"
        return next((text for (text,) in self._execute(query)), None)

    def _execute(self, query: str, *values: Any) -> list[Any]:
        with self._failures(), self._lock:
            return self._rows.execute(query, values).fetchall()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            hint = "COMPRESS_CACHE names another folder; answers that were paid for are in this file"
            raise CompressError(f"the cache of answers {self.path} cannot be used: {error}", hint=hint) from error
