"""The command: parse the options, run the bench, show and write its results."""

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
    """Run a bench and show it in the console's format; fail if nothing could be timed or the file not be written.

    After an interruption the finished sessions are shown too, but not as json: half a document would look complete.
    """
    written = BenchOutput(output, console)
    try:
        result = bench(
            models,
            read_targets(targets),
            against=against,
            grid=read_grid(grid),
            texts=texts,
            settings=read_settings(rounds, seconds, budget, callers),
            limits=limits,
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
