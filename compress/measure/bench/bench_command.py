"""The command: parse the options, run the bench, show and write its results."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from pydantic import ValidationError

from compress.console import Console
from compress.errors import CompressError, UsageError
from compress.measure.bench import bench
from compress.measure.bench.bench_result import Bench
from compress.measure.bench.bench_tables import show
from compress.measure.bench.parse_options import read_grid, read_settings, read_targets
from compress.storage.atomic_write import atomic_write


def bench_and_show(options: argparse.Namespace, console: Console) -> None:
    """Run a bench and show it in the console's format; fail if nothing could be timed or the file not be written.

    After an interruption the finished sessions are shown too, but not as json: half a document would look complete.
    """
    written = BenchOutput(options.output, console)
    try:
        result = bench(
            options.models,
            read_targets(options.targets),
            against=options.against,
            grid=read_grid(options.grid),
            texts=options.texts,
            settings=read_settings(options.rounds, options.seconds, options.budget, options.callers),
            limits=options.limits,
            console=console,
            on_session=written,
        )
    except KeyboardInterrupt:
        if written.result is not None and console.format != "json":
            show(written.result, console)
        raise
    show(result, console)
    if not result.timed:
        raise CompressError("nothing could be timed; the rows say why")
    if written.error is not None:
        raise CompressError(written.error)


class BenchOutput:
    """Remembers the latest results of a bench, and writes them after every session if a file is given."""

    def __init__(self, path: Path | None, console: Console) -> None:
        """Refuse a file that cannot be written, or that has other content, before anything is timed."""
        if path is not None:
            _check(path)
        self.path, self.console = path, console
        self.result: Bench | None = None
        self.error: str | None = None
        """Why the file does not have the latest results."""

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


def _check(path: Path) -> None:
    if path.suffix != ".json":
        raise UsageError(f"--output {path}: expected a file that ends in .json.")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"--output {path}: the folder {path.parent} does not exist or is not writable.")
    try:
        Bench.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return
    except (OSError, ValidationError) as error:
        raise UsageError(f"--output {path} has other content already; name another file.") from error
