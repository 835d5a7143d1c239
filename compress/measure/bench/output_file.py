"""The file that `--output` names: checked before anything is timed, written anew after every session."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from compress.atomic_write import atomic_write
from compress.console import Console
from compress.errors import UsageError
from compress.measure.bench.bench_result import Bench


@dataclass
class BenchOutput:
    """Holds what a bench has found so far, and writes it where a file is named."""

    path: Path | None = None
    console: Console = field(default_factory=lambda: Console("quiet"))
    found: Bench | None = None
    fault: str | None = None
    """Why the file does not hold what was found last; None where it does, or none is named."""

    def __post_init__(self) -> None:
        """Refuse a file that could not be written in the end, or that holds something else."""
        if self.path is not None:
            _check(self.path)

    def __call__(self, found: Bench) -> None:
        """Take what there is now; where it cannot be written, timing goes on, and `fault` says why."""
        self.found = found
        if self.path is None:
            return
        before, self.fault = self.fault, None
        try:
            atomic_write(self.path, json.dumps(found.model_dump(mode="json"), indent=2) + "\n")
        except OSError as error:
            self.fault = f"{self.path} cannot be written: {error.strerror or error}"
            if self.fault != before:
                self.console.warn(self.fault)


def read_bench(path: Path) -> Bench:
    """What `--output` wrote."""
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
        raise UsageError(f"--output {path}: the folder {path.parent} cannot be written to.")
    if path.exists():
        try:
            read_bench(path)
        except UsageError as error:
            raise UsageError(f"--output {path} holds something else already; name another file.") from error
