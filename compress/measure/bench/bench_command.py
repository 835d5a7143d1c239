"""The command: options as they were typed in, figures shown and kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compress.console import Console
from compress.errors import CompressError
from compress.measure.bench import bench
from compress.measure.bench.bench_tables import show
from compress.measure.bench.output_file import BenchOutput
from compress.measure.bench.parse_options import read_grid, read_settings, read_targets


def bench_and_show(
    models: Sequence[str],
    console: Console,
    *,
    targets: Sequence[str] = (),
    grid: Sequence[str] = (),
    callers: str | None = None,
    rounds: int | None = None,
    seconds: float | None = None,
    budget: str | None = None,
    texts: Path | None = None,
    against: str | None = None,
    output: Path | None = None,
    limits: bool = False,
) -> None:
    """Run a bench, show it in the console's format, and fail where nothing could be timed or the file not be written.

    What was finished before an interruption is shown too; in json it is not, since half a document would pass for a
    whole one.
    """
    kept = BenchOutput(output, console)
    try:
        found = bench(
            models,
            read_targets(targets),
            against=against,
            grid=read_grid(grid),
            texts=texts,
            settings=read_settings(rounds, seconds, budget, callers),
            limits=limits,
            console=console,
            kept=kept,
        )
    except KeyboardInterrupt:
        if kept.found is not None and console.format != "json":
            show(kept.found, console)
        raise
    show(found, console)
    if not found.timed:
        raise CompressError("nothing could be timed; the rows say why")
    if kept.fault is not None:
        raise CompressError(kept.fault)
