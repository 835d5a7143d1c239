"""Every answer that was paid for, in one database on disk: no text is asked about twice, and no payment is forgotten.

A request is noted before it is sent, and its note is replaced by the answer when that arrives: what remains after a
kill or a lost connection may have been charged. An answer is never changed. SQLite keeps what was written when the
process is killed, lets other processes read meanwhile, and needs no more memory for a million answers than for ten.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from compress.errors import CompressError
from compress.storage.file_names import cache_folder

FINISHED = "(valid OR invalid >= :attempts OR cut_off_at >= :answer_tokens)"
"""Whether a sample is not asked for any more; a text that was refused has no further samples either."""


@dataclass(frozen=True)
class Answer:
    """One answer of the service, valid or not, with what it counted."""

    text: str
    valid: bool
    input_tokens: int
    output_tokens: int
    stated: bool
    """Whether the service stated the tokens; otherwise they are an upper bound."""
    cut_off_at: int | None = None
    """The longest answer that was allowed, where this one was cut off there."""


class Wanted(NamedTuple):
    """What a command wants of each text."""

    samples: int
    attempts: int
    """How many invalid answers a sample may have; those that were cut off do not count."""
    answer_tokens: int
    """A sample that was cut off at so many tokens, or more, is not asked for again."""


@dataclass(frozen=True)
class Usage:
    """What the texts of a command have used so far, whichever command paid for it."""

    answers: int
    """Samples with a valid answer, of those that are wanted."""
    finished: int
    """Wanted samples that are not asked for any more: answered, invalid too often, cut off, or refused."""
    refused: int
    """Texts that the service refused."""
    valid: int
    """Valid answers, also of samples that are not wanted any more, as in all that follows."""
    input_tokens: int
    """Of all answers, valid or not."""
    output_tokens: int
    stated: bool
    """Whether the service stated all of these."""
    characters: int
    """Of the prompts of these answers, for the number of tokens to a character."""
    lost: int
    """Requests without an answer, which may have been charged."""
    lost_input_tokens: int
    """At most."""
    lost_output_tokens: int


def request_key(parts: Any) -> str:
    """Return the digest of what decides an answer: address, model, messages, labels, temperature."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def answers_file() -> Path:
    """Return the file that holds the answers of all services."""
    return cache_folder() / "answers.sqlite"


class AnswerCache:
    """The answers in ``path``; may be used by several threads."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._wanted, self._database = wanted, AnswerDatabase(path)
        self._execute = self._database.execute

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add_text(self, key: str, characters: int) -> None:
        """Note that this command is about a text, whose prompt has so many characters."""
        self._execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", key, characters)

    def count_texts(self) -> tuple[int, int]:
        """Return the number of different texts, and the characters of their prompts together."""
        ((count, characters),) = self._execute("SELECT count(*), total(characters) FROM texts")
        return count, int(characters)

    def begin_request(self, key: str, most_input_tokens: int, most_output_tokens: int) -> int:
        """Note a request that is about to be sent, and what it can cost at most; return its number."""
        query = "INSERT INTO requests (key, input_tokens, output_tokens) VALUES (?, ?, ?) RETURNING id"
        ((number,),) = self._execute(query, key, most_input_tokens, most_output_tokens)
        return int(number)

    def cancel_request(self, request: int) -> None:
        """Forget a request that certainly was not charged."""
        self._execute("DELETE FROM requests WHERE id = ?", request)

    def add(self, request: int, sample: int, characters: int, answer: Answer) -> None:
        """Replace a request by its answer, which is on disk when this returns.

        Another command may have stored an answer to the same sample meanwhile: both were paid for, and are kept.
        """
        counts = answer.input_tokens, answer.output_tokens, int(answer.stated), answer.cut_off_at
        values = answer.text, int(answer.valid), characters, *counts
        number = "(SELECT count(*) FROM answers WHERE answers.key = requests.key AND sample = ?)"
        query = f"INSERT INTO answers SELECT key, ?, {number}, ?, ?, ?, ?, ?, ?, ? FROM requests WHERE id = ?"
        with self._database.transaction() as rows:
            rows.execute(query, (sample, sample, *values, request))
            rows.execute("DELETE FROM requests WHERE id = ?", (request,))

    def add_refusal(self, key: str, reason: str) -> None:
        """Note that the service refuses a text."""
        self._execute("INSERT OR REPLACE INTO refusals VALUES (?, ?)", key, reason)

    def forget_refusal(self, key: str) -> None:
        """Let a text be asked about again."""
        self._execute("DELETE FROM refusals WHERE key = ?", key)

    def forget_refusals(self) -> None:
        """Let every text of this command be asked about again."""
        self._execute("DELETE FROM refusals WHERE key IN (SELECT key FROM texts)")

    def is_refused(self, key: str) -> bool:
        """Return whether the service refused a text."""
        return bool(self._execute("SELECT 1 FROM refusals WHERE key = ?", key))

    def valid_answers(self, key: str) -> list[str]:
        """Return the first valid answer of each sample of a text."""
        query = """SELECT answer, min(attempt) FROM answers WHERE key = ? AND sample < ? AND valid
            GROUP BY sample ORDER BY sample"""
        return [text for text, _ in self._execute(query, key, self._wanted.samples)]

    def was_cut_off(self, key: str) -> bool:
        """Return whether an answer to a text was cut off at the length that is wanted, or a larger one."""
        query = "SELECT 1 FROM answers WHERE key = ? AND cut_off_at >= ? LIMIT 1"
        return bool(self._execute(query, key, self._wanted.answer_tokens))

    def missing_samples(self, key: str) -> list[int]:
        """Return the samples of a text to ask for."""
        if self.is_refused(key):
            return []
        query = f"SELECT sample FROM samples WHERE key = :key AND {FINISHED}"
        finished = {sample for (sample,) in self._execute(query, key=key, **self._wanted._asdict())}
        return [sample for sample in range(self._wanted.samples) if sample not in finished]

    def usage(self) -> Usage:
        """Return what the texts of this command have used."""
        query = f"""SELECT total(valid), total({FINISHED} AND key NOT IN (SELECT key FROM refusals))
            FROM samples JOIN texts USING (key) WHERE sample < :samples"""
        ((answers, finished),) = self._execute(query, **self._wanted._asdict())
        ((refused,),) = self._execute("SELECT count(*) FROM refusals JOIN texts USING (key)")
        query = """SELECT total(valid), total(input_tokens), total(output_tokens), min(stated),
            total(answers.characters) FROM answers JOIN texts USING (key)"""
        ((valid, given, made, stated, characters),) = self._execute(query)
        query = "SELECT count(*), total(input_tokens), total(output_tokens) FROM requests JOIN texts USING (key)"
        ((lost, lost_given, lost_made),) = self._execute(query)
        return Usage(
            answers=int(answers),
            finished=int(finished) + refused * self._wanted.samples,
            refused=refused,
            valid=int(valid),
            input_tokens=int(given),
            output_tokens=int(made),
            stated=stated != 0,
            characters=int(characters),
            lost=lost,
            lost_input_tokens=int(lost_given),
            lost_output_tokens=int(lost_made),
        )

    def example_invalid(self) -> str | None:
        """Return one of the invalid answers to the texts of this command, if possible to one that is not refused."""
        query = """SELECT answer FROM answers JOIN texts USING (key) WHERE NOT valid AND cut_off_at IS NULL
            ORDER BY key IN (SELECT key FROM refusals) LIMIT 1"""
        return next((text for (text,) in self._execute(query)), None)

    def example_refusal(self) -> str | None:
        """Return why the service refused one of the texts of this command."""
        query = "SELECT reason FROM refusals JOIN texts USING (key) LIMIT 1"
        return next((reason for (reason,) in self._execute(query)), None)


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
