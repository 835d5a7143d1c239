"""Where steps live: `.steps/<step>-<fingerprint>`, whole or absent, shared by all runs below one root.

A step is built in `.steps/.partial/…` and renamed into place, so that a folder that exists is whole; what a killed
attempt left there is handed to the next one, which may go on from it. One process at a time builds a step: the others
wait.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from compress.atomic_write import atomic_replace_folder
from compress.console import Console
from compress.errors import UsageError
from compress.model_info import combined_digest, digests

RECORD_FILE = "step.json"


class InputRecord(BaseModel):
    """An input as it was when the step ran."""

    model_config = ConfigDict(frozen=True)

    fingerprint: str
    digest: str


class StepRecord(BaseModel):
    """What a finished step says of itself."""

    model_config = ConfigDict(frozen=True)

    schema_version: Literal[1] = 1
    step: str
    kind: str
    fingerprint: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, InputRecord]
    digest: str
    seconds: float
    work: float | None = None
    """How much there was to do, in the unit that this kind of step is forecast by."""
    rates: Mapping[str, Any] | None = None
    """Throughput of a training, read by `forecast.training_cost`; None where nothing was trained."""
    machine: str
    versions: Mapping[str, str]
    peak_memory: int
    """Largest resident memory of the process so far, in bytes."""
    created: str


class StepStore:
    """The steps below one root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.steps = root / ".steps"

    def folder(self, step: str, fingerprint: str) -> Path:
        """Where the finished step lives."""
        return self.steps / f"{step}-{fingerprint}"

    def partial(self, step: str, fingerprint: str) -> Path:
        """Where the step is built; created when absent."""
        path = self.steps / ".partial" / f"{step}-{fingerprint}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def record(self, step: str, fingerprint: str) -> StepRecord | None:
        """The record of a finished step, or None where there is none that can be read."""
        try:
            return StepRecord.model_validate_json((self.folder(step, fingerprint) / RECORD_FILE).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def finish(self, record: StepRecord, work: Path) -> Path:
        """Write the record into ``work`` and rename it into place, over an older result if there is one."""
        (work / RECORD_FILE).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
        folder = self.folder(record.step, record.fingerprint)
        if folder.exists():
            self.discard(folder)
        atomic_replace_folder(work, folder)
        return folder

    def discard(self, folder: Path) -> None:
        """Remove a folder so that no reader ever finds half of it: rename first, then delete."""
        aside = self.steps / ".trash" / f"{folder.name}-{os.getpid()}-{time.monotonic_ns()}"
        aside.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    @contextmanager
    def hold(self, name: str, console: Console) -> Iterator[None]:
        """Hold ``name`` against other processes; when another holds it, say who and wait."""
        locks = self.steps / ".locks"
        try:
            locks.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--runs: {self.root} cannot be written to: {error.strerror}") from error
        lock, owner = FileLock(locks / f"{name}.lock"), locks / f"{name}.owner"
        try:
            lock.acquire(timeout=0)
        except Timeout:
            console.note(f"waiting for {name}: {_owner_text(owner)} holds it")
            lock.acquire()
        try:
            owner.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}))
            yield
        finally:
            lock.release()

    def is_held(self, name: str) -> bool:
        """Whether a living process holds ``name``."""
        path = self.steps / ".locks" / f"{name}.lock"
        if not path.exists():
            return False
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False

    def all_steps(self) -> list[Path]:
        """Every finished step's folder."""
        return sorted(path.parent for path in self.steps.glob(f"*/{RECORD_FILE}"))

    def records(self) -> Iterator[StepRecord]:
        """The readable records of all finished steps."""
        for folder in self.all_steps():
            try:
                yield StepRecord.model_validate_json((folder / RECORD_FILE).read_bytes())
            except ValidationError:
                continue


def content_digest(folder: Path) -> str:
    """One digest over all that a step left, its own record aside."""
    return combined_digest({name: digest for name, digest in digests(folder).items() if name != RECORD_FILE})


def _owner_text(path: Path) -> str:
    try:
        owner = json.loads(path.read_text())
        return f"process {owner['pid']} on {owner['host']} (since {owner['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
