"""The file of `--output`: checked before anything is timed, rewritten after every session."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from compress.console import Console
from compress.errors import UsageError
from compress.measure.bench.bench_result import Bench
from compress.storage.atomic_write import atomic_write


@dataclass
class BenchOutput:
    """Remembers the latest results of a bench, and writes them if a file is given."""

    path: Path | None = None
    console: Console = field(default_factory=lambda: Console("quiet"))
    result: Bench | None = None
    error: str | None = None
    """Why the file does not have the latest results."""

    def __post_init__(self) -> None:
        """Refuse a file that cannot be written, or that has other content."""
        if self.path is not None:
            _check(self.path)

    def __call__(self, result: Bench) -> None:
        """Write the results so far; if that fails, timing continues and `error` says why."""
        self.result = result
        if self.path is None:
            return
        before, self.error = self.error, None
        try:
            atomic_write(self.path, json.dumps(result.model_dump(mode="json"), indent=2) + "\n")
        except OSError as error:
            self.error = f"{self.path} cannot be written: {error.strerror or error}"
            if self.error != before:
                self.console.warn(self.error)


def read_bench(path: Path) -> Bench:
    """Return the content of an output file."""
    try:
        return Bench.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(f"{path} is no result of compress bench.") from error


def _check(path: Path) -> None:
    if path.suffix != ".json":
        raise UsageError(f"--output {path}: expected a file that ends in .json.")
    if path.is_dir():
        raise UsageError(f"--output {path} is a folder; expected a file.")
    if not path.parent.is_dir():
        raise UsageError(f"--output {path}: there is no folder {path.parent}.")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"--output {path}: the folder {path.parent} is not writable.")
    if path.exists():
        try:
            read_bench(path)
        except UsageError as error:
            raise UsageError(f"--output {path} has other content already; name another file.") from error
