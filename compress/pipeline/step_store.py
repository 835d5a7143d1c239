"""Stores steps in `.steps/<step>-<fingerprint>`, complete or absent, shared by all runs below one root.

A step is built in `.steps/.partial/…` and renamed when it is complete. What a killed attempt left there is given to the
next one, which may continue from it. One process at a time builds a step; others wait.
"""

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from filelock import FileLock, Timeout
from pydantic import ValidationError

from compress.console import Console
from compress.errors import CompressError
from compress.storage.atomic_write import atomic_replace_folder, atomic_write, copy_content
from compress.storage.file_digests import combined_digest, digests
from compress.storage.file_names import RECORD_FILE, STEPS_FOLDER
from compress.storage.stored_info import Info, up_to

INPUTS_FILE = "inputs.json"
"""Of a step that is being built: the digests of its inputs."""


class InputRecord(Info):
    """An input as it was when the step ran."""

    fingerprint: str
    digest: str


class StepRecord(Info):
    """The content of step.json: what a finished step did, from what, and what it took."""

    schema_version: Annotated[int, up_to(2)] = 2
    step: str
    kind: str
    version: int
    """Of its kind, as in `fingerprint.VERSIONS`."""
    fingerprint: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, InputRecord]
    digest: str
    """Of everything it left except this record."""
    seconds: float
    rates: Mapping[str, Any] | None = None
    """Throughput of a training, read by `forecast.time_forecast`; None where nothing was trained."""
    measured: Mapping[str, Any] | None = None
    """What a step that trains nothing measured on this machine and leaves out of its result."""
    incomplete: str | None = None
    """What failed in it, which the next run tries again; None: nothing."""
    machine: str
    versions: Mapping[str, str]
    made_by: str = ""
    """The version of compress that ran it."""
    peak_memory: int | None = None
    """Largest resident memory of the process while the step ran, in bytes; None where the system does not report it."""
    created: str

    @property
    def input_digests(self) -> dict[str, str]:
        """The digests of its inputs by step name."""
        return {name: one.digest for name, one in self.inputs.items()}


class StepStore:
    """The steps below one root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.steps = root / STEPS_FOLDER

    def folder(self, step: str, fingerprint: str) -> Path:
        """The folder of the finished step."""
        return self.steps / f"{step}-{fingerprint}"

    def folder_of(self, record: StepRecord) -> Path:
        """The folder that a record describes."""
        return self.folder(record.step, record.fingerprint)

    def partial(self, step: str, fingerprint: str) -> Path:
        """The folder in which the step is built; created if it does not exist."""
        path = self.steps / ".partial" / f"{step}-{fingerprint}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def begin(self, step: str, fingerprint: str, inputs: Mapping[str, str], forced: bool = False) -> Path:
        """The folder in which the step is built from inputs with these digests.

        What a killed attempt left there stays only if it had the same inputs: a model that was made again may differ.
        If it had done all but the last renaming, `completed` returns its record.
        An incomplete result of the same inputs is continued too, unless the step is ``forced``.
        """
        work, content = self.partial(step, fingerprint), json.dumps(inputs, sort_keys=True)
        path = work / INPUTS_FILE
        if any(work.iterdir()) and not (path.is_file() and path.read_text(encoding="utf-8") == content):
            shutil.rmtree(work)
            work.mkdir()
        if self.completed(work):
            if not forced:
                return work
            shutil.rmtree(work)
            work.mkdir()
        (work / RECORD_FILE).unlink(missing_ok=True)
        before = _read_record(self.folder(step, fingerprint) / RECORD_FILE)
        if not any(work.iterdir()) and not forced and before and before.incomplete and before.input_digests == inputs:
            share_folder(self.folder_of(before), work)
            (work / RECORD_FILE).unlink()
        path.write_text(content, encoding="utf-8")
        return work

    def completed(self, work: Path) -> StepRecord | None:
        """The record of a step that was killed when all but its renaming was done."""
        record = _read_record(work / RECORD_FILE)
        is_whole = record is not None and not record.incomplete and content_digest(work) == record.digest
        return record if is_whole else None

    def abandon(self, work: Path) -> None:
        """Remove the folder of a failed step unless a later attempt can resume from what is in it."""
        if work.is_dir() and all(path.name == INPUTS_FILE for path in work.iterdir()):
            shutil.rmtree(work)

    def record(self, step: str, fingerprint: str) -> StepRecord | None:
        """The record of a complete step; None where there is none, or none that can be read."""
        record = _read_record(self.folder(step, fingerprint) / RECORD_FILE)
        return record if record and not record.incomplete else None

    def equal_step(
        self, name: str, version: int, settings: Mapping[str, Any], inputs: Mapping[str, str]
    ) -> StepRecord | None:
        """A complete step of any fingerprint with this name, version and settings, and inputs of these digests."""
        return self._by_content.get(_content_key(name, version, settings, inputs))

    @cached_property
    def _by_content(self) -> dict[str, StepRecord]:
        return {
            _content_key(record.step, record.version, record.settings, record.input_digests): record
            for record in self.records()
            if not record.incomplete
        }

    def has_of_other_machine(
        self, name: str, version: int, settings: Mapping[str, Any], inputs: Mapping[str, str]
    ) -> bool:
        """Whether there is a result of a step that differs in the machine alone, for steps that depend on it."""
        if "machine" not in settings:
            return False
        others = {each.settings.get("machine") for each in self.records() if each.step == name} - {settings["machine"]}
        return any(self.equal_step(name, version, {**settings, "machine": one}, inputs) for one in others)

    def adopt(self, record: StepRecord, fingerprint: str, inputs: Mapping[str, InputRecord]) -> StepRecord | None:
        """Give the result of an equal step a fingerprint of its own, sharing its files; None where it was removed."""
        work = self.steps / ".partial" / f"{record.step}-{fingerprint}.adopted"
        shutil.rmtree(work, ignore_errors=True)
        try:
            share_folder(self.folder_of(record), work)
        except (OSError, shutil.Error):
            shutil.rmtree(work, ignore_errors=True)
            return None
        adopted = record.model_copy(update={"fingerprint": fingerprint, "inputs": dict(inputs)})
        (work / RECORD_FILE).unlink()  # a link to the other step's record
        self.finish(adopted, work)
        return adopted

    def finish(self, record: StepRecord, work: Path) -> Path:
        """Write the record into ``work`` and rename it, replacing an older result."""
        atomic_write(work / RECORD_FILE, record.model_dump_json(indent=2) + "\n")
        folder = self.folder_of(record)
        if folder.exists():
            self.discard(folder)
        atomic_replace_folder(work, folder)
        (folder / INPUTS_FILE).unlink(missing_ok=True)
        return folder

    def discard(self, folder: Path) -> None:
        """Remove a folder so that no reader finds part of it: rename first, then delete."""
        trash = self.steps / ".trash" / f"{folder.name}-{os.getpid()}-{time.monotonic_ns()}"
        trash.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    @contextmanager
    def hold(self, name: str, console: Console) -> Iterator[None]:
        """Lock ``name`` against other processes; if another holds it, name its owner and wait."""
        locks = self.steps / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock, owner = FileLock(locks / f"{name}.lock"), locks / f"{name}.owner"
        try:
            lock.acquire(timeout=0)
        except Timeout:
            who = owner.read_text() if owner.is_file() else "another process"
            console.note(f"waiting for {name}: {who} holds it; a run with another --runs folder does not wait")
            lock.acquire()
        try:
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            owner.write_text(f"process {os.getpid()} on {socket.gethostname()} (since {since})")
            yield
        finally:
            lock.release()

    def is_held(self, name: str) -> bool:
        """Whether a living process holds ``name``."""
        path = self.steps / ".locks" / f"{name}.lock"
        if not path.exists():
            return False
        try:
            with FileLock(path).acquire(timeout=0):
                return False
        except Timeout:
            return True

    def all_steps(self) -> list[Path]:
        """Every finished step's folder."""
        return sorted(path.parent for path in self.steps.glob(f"*/{RECORD_FILE}"))

    def records(self) -> Iterator[StepRecord]:
        """The readable records of all finished steps."""
        for folder in self.all_steps():
            if record := _read_record(folder / RECORD_FILE):
                yield record


def content_digest(folder: Path) -> str:
    """One digest over everything that a step left, except its record and what it was begun with."""
    own = {name: digest for name, digest in digests(folder).items() if name not in (RECORD_FILE, INPUTS_FILE)}
    return combined_digest(own)


def _content_key(name: str, version: int, settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    return json.dumps([name, version, settings, inputs], sort_keys=True)


def read_record(folder: Path) -> StepRecord:
    """Return the record of the step in ``folder``."""
    record = _read_record(folder / RECORD_FILE)
    if record is None:
        raise CompressError(f"{folder} is not the result of a step: its {RECORD_FILE} is missing or damaged.")
    return record


def _read_record(path: Path) -> StepRecord | None:
    try:
        return StepRecord.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValidationError as error:
        newer = [one["msg"] for one in error.errors() if one["loc"] == ("schema_version",)]
        if newer:
            raise CompressError(f"{path}: {newer[0]}") from error
        return None


def share_folder(source: Path, target: Path) -> None:
    """Make ``target`` a folder with the files of ``source``: shared where the file system can, else copied.

    Shared files must be replaced, not written to.
    """

    def share(file: Path, copy: Path) -> None:
        copy.unlink(missing_ok=True)  # what a killed attempt left
        try:
            os.link(file, copy)
        except OSError:
            shutil.copyfile(file, copy)

    copy_content(source, target, share)
