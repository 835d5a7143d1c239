"""The tables of a bench: for each session how the models compare, what each costs, and how precise that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Any

from compress.console import Console, duration
from compress.errors import pluralize
from compress.formats import STORED_PRECISION
from compress.measure.bench.bench_result import Bench, Comparison, TimedModel
from compress.measure.result_base import Score
from compress.measure.roofline.roofline import MachineLimits
from compress.measure.timing.latency import Latency, Noise, describe_precision

PRECISE = 0.005
"""Half an interval's width over its value below which a fourth digit is meaningful."""
MIN_SHARE = 0.01
"""Shares below it are not mentioned, or shown as less than it."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Rows, and lines of text under them."""

    title: str
    rows: Sequence[Row]
    columns: Sequence[str]
    lines: Sequence[str] = ()


def show(result: Bench, console: Console) -> None:
    """Print a bench in the console's format: tables, one JSON object, or a line for each model and session."""
    if console.format == "json":
        console.data(result)
    elif console.format == "quiet":
        console.table(quiet_rows(result))
    else:
        for table in tables(result):
            console.table(table.rows, table.columns, table.title)
            console.line("\n".join(["", *table.lines, ""] if table.lines else [""]))


def tables(result: Bench) -> Iterator[Table]:
    """Yield all tables in order."""
    for session in result.targets:
        yield _comparison(session, result.against, result.settings.budget)
        if session.timed:
            yield _costs(session, result)
            if loads := _under_load(session):
                yield Table("concurrent callers", loads, list(loads[0]), _unstable_loads(session))
    yield from _grids(result)


def quiet_rows(result: Bench) -> list[Row]:
    """Return a row for each model and session: the ratio, or why there is none."""
    sessions = {session.title: session for session in (*result.targets, *result.grid)}
    return [
        {
            "model": name,
            "session": session.title,
            "status": timed.latency.status,
            "p50": timed.latency.model.p50.value if timed.latency.model else None,
            "ratio": timed.ratio.value if timed.ratio else None,
            "low": timed.ratio.low if timed.ratio else None,
            "high": timed.ratio.high if timed.ratio else None,
            "reason": timed.latency.reason,
        }
        for session in sessions.values()
        for name, timed in session.models.items()
    ]


def _comparison(session: Comparison, against: str, budget: float | None) -> Table:
    rows = []
    for name, timed in session.models.items():
        model, ratio = timed.latency.model, timed.ratio
        row: Row = {"model": name, "status": timed.latency.status}
        if len(session.models) > 1:
            row["faster"] = "1" if name == against and model else interval(ratio) if ratio else None
        row |= {
            "p50 ms": interval(model.p50) if model else None,
            "p95 ms": _figure(model.p95.value) if model and model.p95 else None,
            "p99 ms": _figure(model.p99.value) if model and model.p99 else None,
        }
        rows.append(row)
    versus = f"; times faster than {against}" if len(session.models) > 1 else ""
    return Table(f"{session.title}{versus}", rows, list(rows[0]), list(_notes(session, against, budget)))


def _notes(session: Comparison, against: str, budget: float | None) -> Iterator[str]:
    """Yield why figures are missing or unstable, what else ran, and the precision reached."""
    reasons: dict[str, list[str]] = {}
    for name, timed in session.models.items():
        if timed.latency.reason:
            reasons.setdefault(f"{timed.latency.status}: {timed.latency.reason}", []).append(name)
    yield from (f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    if session.timed and len(session.models) > 1 and not session.models[against].latency.timed:
        others = next(name for name, timed in session.models.items() if timed.latency.timed)
        yield f"no ratios, since {against} has no figure; --against {others} sets another base"
    # The interference of an unstable one is in its reason.
    stable = [timed.latency for timed in session.models.values() if timed.latency.status == "measured"]
    noises = [latency.noise for latency in stable if latency.noise]
    if noises:
        yield f"during the turns, at most: {describe_noise(noises)}"
    if session.timed:
        yield reached_precision(session, against, budget)


def describe_noise(noises: Sequence[Noise]) -> str:
    """Return what else the machine did, the worst over all models, without what is negligible or unknown."""
    limits: dict[str, tuple[float, list[float | None]]] = {
        "other work used {:.0%} of the cores": (MIN_SHARE, [noise.other_load for noise in noises]),
        "the other cores were {:.0%} busy": (MIN_SHARE, [noise.beside for noise in noises]),
        "the hypervisor took {:.0%}": (MIN_SHARE, [noise.stolen for noise in noises]),
        "{:.0f} preemptions/s": (1, [noise.preempted for noise in noises]),
        "throttled {:.0f} times": (1, [noise.throttled for noise in noises]),
    }
    worst = {text: max((value or 0.0 for value in values), default=0.0) for text, (_, values) in limits.items()}
    parts = [text.format(value) for text, value in worst.items() if value >= limits[text][0]]
    return ", ".join(parts) or "no other activity that this system reports"


def reached_precision(session: Comparison, against: str, budget: float | None) -> str:
    """Return the precision that the session's time has bought."""
    medians = [timed.latency.model.p50 for timed in session.models.values() if timed.latency.model]
    ratios = [timed.ratio for name, timed in session.models.items() if timed.ratio and name != against]
    spent = duration(session.seconds) + (f" of a budget of {duration(budget)}" if budget else "")
    return f"{spent} bought {describe_precision(medians, ratios)}"


def _costs(session: Comparison, result: Bench) -> Table:
    sizes = {model.name: model.footprint for model in result.models}
    timed_models = {name: timed for name, timed in session.models.items() if timed.latency.timed}
    rows = []
    for name, timed in timed_models.items():
        size = sizes[name]
        row = {"model": name, **_cost(timed.latency), "size MB": _figure(size.bytes_total / 1e6) if size else None}
        rows.append(row | {"of matrix limit": _share(timed)})
    columns = [column for column in rows[0] if any(row[column] is not None for row in rows)]
    lines = [
        f"energy: {source}" for source in sorted({timed.latency.energy or "" for timed in timed_models.values()} - {""})
    ]
    lines += [
        describe_limits(limits) for limits in result.limits if (limits.device, limits.threads) == _device(session)
    ]
    return Table("cost of each model", rows, columns, [*lines, *_without_share(session)])


def describe_limits(limits: MachineLimits) -> str:
    """`fp32 90, int8 800 G operations/s, memory 12 GB/s`; a multiplication with its addition is two operations."""
    rates = [(name, limits.rate(name)) for name in ("fp32", "bf16", "fp16", "int8")]
    known = ", ".join(f"{name} {_figure(rate.value / 1e9)}" for name, rate in rates if rate is not None)
    parts = [f"{known} G operations/s"] if known else []
    if limits.bandwidth is not None:
        parts.append(f"memory {_figure(limits.bandwidth / 1e9)} GB/s")
    return f"this machine's limits: {', '.join(parts)}"


def _device(session: Comparison) -> tuple[str, int]:
    return session.device, session.threads


def _cost(latency: Latency) -> Row:
    def mebibytes(value: int | None) -> int | None:
        return round(value / 2**20) if value is not None else None

    return {
        "rows/s": _figure(latency.rows_per_second),
        "text to answer ms": _figure(latency.end_to_end.p50.value) if latency.end_to_end else None,
        "on device ms": _figure(latency.device.p50.value) if latency.device else None,
        "first answer s": _figure(latency.first_answer_seconds),
        "load s": _figure(latency.load_seconds),
        "resident MiB": mebibytes(latency.resident_memory),
        "peak MiB": mebibytes(latency.peak_memory),
        "device MiB": mebibytes(latency.device_memory),
        "mJ/row": _figure(latency.joules_per_row * 1e3) if latency.joules_per_row is not None else None,
        "runs in": _runs_in(latency.runs_with),
    }


def _runs_in(description: Mapping[str, Any]) -> str | None:
    parts = [description.get(key) for key in ("runtime", "version", "precision")]
    return " ".join(str(part) for part in parts if part and part != STORED_PRECISION) or None


def _unstable_loads(session: Comparison) -> list[str]:
    return [
        f"{name}, {pluralize(load.callers, 'caller')}: unstable: {load.unstable}"
        for name, timed in session.models.items()
        for load in timed.latency.under_load
        if load.unstable
    ]


def _under_load(session: Comparison) -> list[Row]:
    return [
        {
            "model": name,
            "callers": load.callers,
            "rows/s": _figure(load.rows_per_second),
            "p50 ms": _figure(load.p50),
            "p95 ms": _figure(load.p95),
        }
        for name, timed in session.models.items()
        for load in timed.latency.under_load
    ]


def _grids(result: Bench) -> Iterator[Table]:
    """Yield a table for each device and number of threads: a row a batch and length, a column a model."""
    for device, threads in dict.fromkeys(map(_device, result.grid)):
        cells = [cell for cell in result.grid if _device(cell) == (device, threads)]
        yield _grid(cells, result.against, f"{device}, {pluralize(threads, 'thread')}")


def _grid(cells: Sequence[Comparison], against: str, device: str) -> Table:
    rows = []
    for cell in cells:
        row: Row = {"batch and pieces": f"{cell.batch} x {cell.length}"}
        row[f"{against}, p50 ms"] = _cell(cell.models[against], _median)
        others = {name: timed for name, timed in cell.models.items() if name != against}
        rows.append(row | {name: _cell(timed, lambda timed: timed.ratio) for name, timed in others.items()})
    versus = "" if len(cells[0].models) == 1 else f"; times faster than {against}"
    return Table(f"grid on {device}{versus}", rows, list(rows[0]), list(_grid_notes(cells)))


def _median(timed: TimedModel) -> Score | None:
    return timed.latency.model.p50 if timed.latency.model else None


def _cell(timed: TimedModel, score: Callable[[TimedModel], Score | None]) -> str | None:
    value = score(timed)
    return None if value is None else interval(value) + (" ~" if timed.latency.status == "unstable" else "")


def _grid_notes(cells: Sequence[Comparison]) -> Iterator[str]:
    results = [(cell, name, timed.latency) for cell in cells for name, timed in cell.models.items()]
    if any(latency.status == "unstable" for _, _, latency in results):
        yield "~ unstable: --format json has the reasons"
    missing: dict[str, list[str]] = {}
    for cell, name, latency in results:
        if not latency.timed:
            missing.setdefault(f"{name}: {latency.reason}", []).append(f"{cell.batch} x {cell.length}")
    for reason, where in missing.items():
        yield f"at {', '.join(where)}: {reason}"


def interval(score: Score) -> str:
    """`2.31 [2.25, 2.38]`, with the digits that the interval's width makes meaningful."""
    digits = 4 if score.relative_half_width < PRECISE else 3
    decimals = max(0, digits - 1 - floor(log10(score.value))) if score.value > 0 else digits
    value, low, high = (f"{number:.{decimals}f}" for number in (score.value, score.low, score.high))
    return f"{value} [{low}, {high}]"


def _figure(value: float | None) -> float | int | None:
    """Round to three digits: more would be noise."""
    if value is None or value == 0:
        return value
    decimals = 2 - floor(log10(abs(value)))
    return round(value, decimals) if decimals > 0 else round(value)


def _share(timed: TimedModel) -> str | None:
    share = timed.shares.compute if timed.shares else None
    return None if share is None else f"{share:.0%}" if share >= MIN_SHARE else f"<{MIN_SHARE:.0%}"


def _without_share(session: Comparison) -> Iterator[str]:
    """Yield why models have no share of the matrix limit."""
    reasons: dict[str, list[str]] = {}
    for name, timed in session.models.items():
        if timed.shares is not None and timed.shares.compute is None and timed.shares.reason:
            reasons.setdefault(timed.shares.reason, []).append(name)
    yield from (f"no share of the matrix limit for {', '.join(names)}: {why}" for why, names in reasons.items())
