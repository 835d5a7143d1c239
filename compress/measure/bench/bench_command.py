"""The command: parse the options, run the bench, show its tables and write its results.

For each session the tables say how the models compare, what each costs, and how precise that is.
"""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compress import format_numbers as fmt
from compress.console import Console, duration
from compress.errors import CompressError, UsageError, group_by_reason, pluralize
from compress.measure.bench import bench
from compress.measure.bench.bench_result import Bench, Comparison, TimedModel
from compress.measure.bench.parse_options import read_grid, read_settings, read_targets
from compress.measure.result_base import Score
from compress.measure.roofline.roofline import MachineLimits
from compress.measure.timing.latency import Latency, describe_precision
from compress.runtimes import STORED_PRECISION
from compress.storage.atomic_write import atomic_write
from compress.tables import Cells, Table, make_table


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


def show(result: Bench, console: Console) -> None:
    """Print a bench in the console's format: tables, one JSON object, or a line for each model and session."""
    if console.format == "json":
        console.data(result)
    elif console.format == "quiet":
        console.table(quiet_rows(result))
    else:
        for table in tables(result):
            console.table(table.rows, table.columns, table.title, table.numeric)
            console.line("\n".join(["", *table.lines, ""] if table.lines else [""]))


def tables(result: Bench) -> Iterator[Table]:
    """Yield all tables in order."""
    for session in result.targets:
        yield _comparison(session, result)
        if session.timed:
            yield _costs(session, result)
            yield from _callers(session)
    for device, threads in dict.fromkeys((cell.device, cell.threads) for cell in result.grid):
        cells = [cell for cell in result.grid if (cell.device, cell.threads) == (device, threads)]
        yield _grid(cells, result.against, f"grid on {device}, {pluralize(threads, 'thread')}")


def quiet_rows(result: Bench) -> list[dict[str, Any]]:
    """Return a row for each model and session: the ratio, or why there is none."""
    sessions = {session.title: session for session in (*result.targets, *result.grid)}
    return [
        {
            "model": name,
            "session": session.title,
            "status": timed.latency.status,
            "p50": _value(timed.latency.quantile("p50")),
            "ratio": _value(timed.ratio),
            "low": timed.ratio.low if timed.ratio else None,
            "high": timed.ratio.high if timed.ratio else None,
            "reason": timed.latency.reason,
        }
        for session in sessions.values()
        for name, timed in session.models.items()
    ]


def _comparison(session: Comparison, result: Bench) -> Table:
    rows, several = [], len(session.models) > 1
    by_mean = any(timed.latency.by_mean for timed in session.models.values())
    for name, timed in session.models.items():
        latency, is_base = timed.latency, name == result.against
        row = {"model": name, "status": latency.status}
        if several:
            row["faster"] = "1" if is_base and latency.timed else fmt.with_interval(timed.ratio)
        row["p50 ms"] = fmt.with_interval(latency.quantile("p50"))
        if by_mean:
            row["mean ms"] = fmt.with_interval(latency.model.mean if latency.model else None)
        row["p95 ms"] = fmt.figure(_value(latency.quantile("p95")))
        row["p99 ms"] = fmt.figure(_value(latency.quantile("p99")))
        rows.append(row)
    versus = f"; times faster than {result.against}" if several else ""
    left, lines = ("status", "faster", "p50 ms"), _notes(session, result)
    return make_table(rows, names=1, left=left, title=session.title + versus, lines=lines)


def _notes(session: Comparison, result: Bench) -> Iterator[str]:
    """Yield why figures are missing or unstable, and the precision reached."""
    latencies = {name: timed.latency for name, timed in session.models.items()}
    reasons = ((name, f"{each.status}: {each.reason}") for name, each in latencies.items() if each.reason)
    yield from (f"{names}: {reason}" for reason, names in group_by_reason(reasons).items())
    if not session.timed:
        return
    if not latencies[result.against].timed:
        others = next(name for name, latency in latencies.items() if latency.timed)
        yield f"no ratios, since {result.against} has no figure; --against {others} sets another base"
    yield reached_precision(session, result.against, result.settings.budget)


def reached_precision(session: Comparison, against: str, budget: float | None) -> str:
    """Return the precision that the session's time has bought."""
    medians = [p50 for timed in session.models.values() if (p50 := timed.latency.quantile("p50"))]
    ratios = [timed.ratio for name, timed in session.models.items() if timed.ratio and name != against]
    spent = duration(session.seconds) + (f" of a budget of {duration(budget)}" if budget else "")
    return f"{spent} bought {describe_precision(medians, ratios)}"


def _costs(session: Comparison, result: Bench) -> Table:
    sizes = {model.name: model.footprint for model in result.models}
    timed_models = {name: timed for name, timed in session.models.items() if timed.latency.timed}
    rows: list[Cells] = []
    for name, timed in timed_models.items():
        size = sizes[name]
        size_mb = fmt.figure(size.bytes_total / 1e6 if size else None)
        rows.append({"model": name, **_cost(timed.latency), "size MB": size_mb, "of matrix limit": _share(timed)})
    energy = sorted({timed.latency.energy for timed in timed_models.values() if timed.latency.energy})
    limits = [each for each in result.limits if (each.device, each.threads) == (session.device, session.threads)]
    reasons = (
        (name, timed.shares.reason)
        for name, timed in timed_models.items()
        if timed.shares is not None and timed.shares.compute is None and timed.shares.reason
    )
    lines = [
        *(f"energy: {source}" for source in energy),
        *map(describe_limits, limits),
        *(f"no share of the matrix limit for {names}: {why}" for why, names in group_by_reason(reasons).items()),
    ]
    table = make_table(rows, names=1, left=("runs in", "of matrix limit"), title="cost of each model", lines=lines)
    return table.without_empty(names=1)


def describe_limits(limits: MachineLimits) -> str:
    """`fp32 90, int8 800 G operations/s, memory 12 GB/s`; a multiplication with its addition is two operations."""
    rates = [(name, limits.rate(name)) for name in ("fp32", "bf16", "fp16", "int8")]
    known = ", ".join(f"{name} {fmt.figure(rate.value / 1e9)}" for name, rate in rates if rate is not None)
    parts = [f"{known} G operations/s"] if known else []
    if limits.bandwidth is not None:
        parts.append(f"memory {fmt.figure(limits.bandwidth / 1e9)} GB/s")
    return f"this machine's limits: {', '.join(parts)}"


def _cost(latency: Latency) -> Cells:
    runs_in = [latency.runs_with.get(key) for key in ("runtime", "version", "precision")]
    return {
        "rows/s": fmt.figure(latency.rows_per_second),
        "text to answer ms": fmt.figure(_value(latency.typical("end_to_end"))),
        "on device ms": fmt.figure(_value(latency.quantile("p50", "device"))),
        "first answer s": fmt.figure(latency.first_answer_seconds),
        "load s": fmt.figure(latency.load_seconds),
        "resident MiB": fmt.figure(latency.resident_memory, 2**20),
        "peak MiB": fmt.figure(latency.peak_memory, 2**20),
        "device MiB": fmt.figure(latency.device_memory, 2**20),
        "mJ/row": fmt.figure(latency.joules_per_row, 1e-3),
        "runs in": " ".join(str(part) for part in runs_in if part and part != STORED_PRECISION) or fmt.ABSENT,
    }


def _callers(session: Comparison) -> Iterator[Table]:
    """Yield a table of throughput under load, if that was measured."""
    loads = [(name, load) for name, timed in session.models.items() for load in timed.latency.under_load]
    rows = [
        {
            "model": name,
            "callers": str(load.callers),
            "rows/s": fmt.figure(load.rows_per_second),
            "p50 ms": fmt.figure(load.p50),
            "p95 ms": fmt.figure(load.p95),
        }
        for name, load in loads
    ]
    unstable = [
        f"{name}, {pluralize(load.callers, 'caller')}: unstable: {load.unstable}"
        for name, load in loads
        if load.unstable
    ]
    if rows:
        yield make_table(rows, names=1, title="concurrent callers", lines=unstable)


def _grid(cells: Sequence[Comparison], against: str, title: str) -> Table:
    """Return a row a batch and length, with the base's time and the other models' ratios."""
    rows, missing, lines = [], [], []
    for cell in cells:
        batch = f"{cell.batch} x {cell.length}"
        row = {"batch and pieces": batch}
        row[f"{against}, p50 ms"] = _marked(cell.models[against], cell.models[against].latency.quantile("p50"))
        row |= {name: _marked(timed, timed.ratio) for name, timed in cell.models.items() if name != against}
        rows.append(row)
        latencies = [(name, timed.latency) for name, timed in cell.models.items()]
        missing += [(batch, f"{name}: {latency.reason}") for name, latency in latencies if not latency.timed]
        if any(latency.status == "unstable" for _, latency in latencies):
            lines = ["~ unstable: --format json has the reasons"]
    versus = "" if len(cells[0].models) == 1 else f"; times faster than {against}"
    lines += [f"at {batches}: {reason}" for reason, batches in group_by_reason(missing).items()]
    return make_table(rows, names=1, left=rows[0], title=title + versus, lines=lines)


def _marked(timed: TimedModel, score: Score | None) -> str:
    unstable = score is not None and timed.latency.status == "unstable"
    return fmt.with_interval(score) + (" ~" if unstable else "")


def _value(score: Score | None) -> float | None:
    return score.value if score else None


def _share(timed: TimedModel) -> str:
    return f"{timed.shares.compute:.1%}" if timed.shares and timed.shares.compute is not None else fmt.ABSENT
