"""What people see of a bench: for each session how the models compare, what each costs, and how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Any

from compress.console import Console, duration
from compress.formats import STORED_PRECISION
from compress.measure.bench.bench_result import Bench, Comparison, TimedModel
from compress.measure.result_base import Score
from compress.measure.roofline.roofline import MachineLimits
from compress.measure.timing.latency import Latency, Noise

SURE = 0.005
"""Half an interval's width over its value below which a fourth digit means something."""

LEAST_SHARE = 0.01
"""Share of the cores below which other work is not worth a word."""
LEAST_SHOWN = 0.01
"""Share of the matrix limit below which a whole percent would read as nothing at all."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Rows to draw, and lines to write under them."""

    title: str
    rows: Sequence[Row]
    columns: Sequence[str]
    lines: Sequence[str] = ()


def show(found: Bench, console: Console) -> None:
    """Write a bench in the console's format: tables, one JSON object, or a bare line for each model and session."""
    if console.format == "json":
        console.data(found)
    elif console.format == "quiet":
        console.table(quiet_rows(found))
    else:
        for table in tables(found):
            console.table(table.rows, table.columns, table.title)
            console.line("\n".join(["", *table.lines, ""] if table.lines else [""]))


def tables(found: Bench) -> Iterator[Table]:
    """Everything that people are shown, in order."""
    for session in found.targets:
        yield _comparison(session, found.against, found.settings.budget)
        if session.timed:
            yield _costs(session, found)
            if loads := _under_load(session):
                yield Table("callers that each wait for their answer", loads, list(loads[0]), _unstable_loads(session))
    yield from _grids(found)


def quiet_rows(found: Bench) -> list[Row]:
    """One bare line for a model and session: ratios, and why there is none."""
    looked_at = {one.title: one for one in (*found.targets, *found.grid)}
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
        for session in looked_at.values()
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
    return Table(f"{session.title}{versus}", rows, list(rows[0]), list(_remarks(session, against, budget)))


def _remarks(session: Comparison, against: str, budget: float | None) -> Iterator[str]:
    """Why a figure is missing or not to be trusted, what else happened, and what the time has bought."""
    reasons: dict[str, list[str]] = {}
    for name, timed in session.models.items():
        if timed.latency.reason:
            reasons.setdefault(f"{timed.latency.status}: {timed.latency.reason}", []).append(name)
    yield from (f"{', '.join(names)}: {words}" for words, names in reasons.items())
    if session.timed and len(session.models) > 1 and not session.models[against].latency.timed:
        others = next(name for name, timed in session.models.items() if timed.latency.timed)
        yield f"no ratios, since {against} has no figure; --against {others} takes another base"
    # What disturbed an unstable one stands in its reason.
    steady = [timed.latency for timed in session.models.values() if timed.latency.status == "measured"]
    noises = [latency.noise for latency in steady if latency.noise]
    if noises:
        yield f"during the turns, at most: {noise_words(noises)}"
    if session.timed:
        yield bought(session, against, budget)


def noise_words(noises: Sequence[Noise]) -> str:
    """What else the machine did, the worst of all models; what is nothing, or what the system does not tell, is not."""
    seen: dict[str, tuple[float, list[float | None]]] = {
        "other work took {:.0%} of the cores": (LEAST_SHARE, [each.other_load for each in noises]),
        "the cores beside were {:.0%} busy": (LEAST_SHARE, [each.beside for each in noises]),
        "the hypervisor took {:.0%}": (LEAST_SHARE, [each.stolen for each in noises]),
        "put off the core {:.0f} times a second": (1, [each.preempted for each in noises]),
        "throttled {:.0f} times": (1, [each.throttled for each in noises]),
    }
    worst = {words: max((value or 0.0 for value in values), default=0.0) for words, (_, values) in seen.items()}
    told = [words.format(value) for words, value in worst.items() if value >= seen[words][0]]
    return ", ".join(told) or "nothing else that this system tells of"


def bought(session: Comparison, against: str, budget: float | None) -> str:
    """The precision that the session's time has bought, or that of as many rounds as were asked for."""
    latencies = [timed.latency for timed in session.models.values() if timed.latency.model]
    medians = [half_width(one.model.p50) for one in latencies if one.model]
    ratios = [half_width(timed.ratio) for name, timed in session.models.items() if timed.ratio and name != against]
    spent = duration(session.seconds)
    what = f"{spent} of a budget of {duration(budget)} bought" if budget else f"these rounds took {spent} and gave"
    told = f"{what} medians within {_percent(max(medians))}"
    return told + (f" and ratios within {_percent(max(ratios))}" if ratios else "")


def half_width(score: Score) -> float:
    """Half an interval's width over its value."""
    return (score.high - score.low) / 2 / score.value


def _costs(session: Comparison, found: Bench) -> Table:
    sizes = {model.name: model.footprint for model in found.models}
    energies = {timed.latency.energy for timed in session.models.values() if timed.latency.energy}
    rows = []
    for name, timed in session.models.items():
        if not timed.latency.timed:
            continue
        size = sizes[name]
        row = {"model": name, **_cost(timed.latency), "size MB": _figure(size.bytes_total / 1e6) if size else None}
        rows.append(row | {"of matrix limit": _share(timed)})
    columns = [column for column in rows[0] if any(row[column] is not None for row in rows)]
    lines = [f"energy: {told}" for told in sorted(energies)]
    lines += [limit_words(each) for each in found.limits if (each.device, each.threads) == _place(session)]
    return Table("what each takes", rows, columns, [*lines, *_unshared(session)])


def limit_words(limits: MachineLimits) -> str:
    """`fp32 90, int8 800 G operations/s, memory 12 GB/s`; a multiplication with its addition is two operations."""
    rates = [(name, limits.rate(name)) for name in ("fp32", "bf16", "fp16", "int8")]
    known = ", ".join(f"{name} {_figure(rate.value / 1e9)}" for name, rate in rates if rate is not None)
    told = [f"{known} G operations/s"] if known else []
    if limits.bandwidth is not None:
        told.append(f"memory {_figure(limits.bandwidth / 1e9)} GB/s")
    return f"the machine's own limits here: {', '.join(told)}"


def _place(session: Comparison) -> tuple[str, int]:
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


def _runs_in(told: Mapping[str, Any]) -> str | None:
    words = [told.get(key) for key in ("runtime", "version", "precision")]
    return " ".join(str(word) for word in words if word and word != STORED_PRECISION) or None


def _unstable_loads(session: Comparison) -> list[str]:
    """Why rows of that table are not to be relied on."""
    return [
        f"{name}, {one.callers} caller{'' if one.callers == 1 else 's'}: unstable: {one.unstable}"
        for name, timed in session.models.items()
        for one in timed.latency.under_load
        if one.unstable
    ]


def _under_load(session: Comparison) -> list[Row]:
    return [
        {
            "model": name,
            "callers": one.callers,
            "rows/s": _figure(one.rows_per_second),
            "p50 ms": _figure(one.p50),
            "p95 ms": _figure(one.p95),
        }
        for name, timed in session.models.items()
        for one in timed.latency.under_load
    ]


def _grids(found: Bench) -> Iterator[Table]:
    """A table a place: a row for each batch and length, a column for each model."""
    places = dict.fromkeys(map(_place, found.grid))
    for device, threads in places:
        cells = [one for one in found.grid if _place(one) == (device, threads)]
        yield _grid(cells, found.against, f"{device}, {threads} thread{'s' if threads != 1 else ''}")


def _grid(cells: Sequence[Comparison], against: str, place: str) -> Table:
    alone = len(cells[0].models) == 1
    base = f"{against}, p50 ms"
    rows = []
    for cell in cells:
        row: Row = {"batch and pieces": f"{cell.batch} x {cell.length}"}
        row[base] = _marked(cell.models[against], _median)
        row |= {name: _marked(timed, _ratio) for name, timed in cell.models.items() if name != against}
        rows.append(row)
    title = f"grid on {place}" + ("" if alone else f"; times faster than {against}")
    return Table(title, rows, list(rows[0]), list(_grid_lines(cells)))


def _median(timed: TimedModel) -> Score | None:
    return timed.latency.model.p50 if timed.latency.model else None


def _ratio(timed: TimedModel) -> Score | None:
    return timed.ratio


def _marked(timed: TimedModel, score: Callable[[TimedModel], Score | None]) -> str | None:
    value = score(timed)
    return None if value is None else interval(value) + (" ~" if timed.latency.status == "unstable" else "")


def _grid_lines(cells: Sequence[Comparison]) -> Iterator[str]:
    every = [(cell, name, timed.latency) for cell in cells for name, timed in cell.models.items()]
    if any(latency.status == "unstable" for _, _, latency in every):
        yield "~ unstable: see --format json for why"
    missing: dict[str, list[str]] = {}
    for cell, name, latency in every:
        if not latency.timed:
            missing.setdefault(f"{name}: {latency.reason}", []).append(f"{cell.batch} x {cell.length}")
    for reason, where in missing.items():
        yield f"at {', '.join(where)}: {reason}"


def interval(score: Score) -> str:
    """`2.31 [2.25, 2.38]`, with the digits that the interval's width lets mean something."""
    digits = 4 if half_width(score) < SURE else 3
    decimals = max(0, digits - 1 - floor(log10(score.value))) if score.value > 0 else digits
    value, low, high = (f"{each:.{decimals}f}" for each in (score.value, score.low, score.high))
    return f"{value} [{low}, {high}]"


def _figure(value: float | None) -> float | int | None:
    """Three digits: more would be noise."""
    if value is None or value == 0:
        return value
    decimals = 2 - floor(log10(abs(value)))
    return round(value, decimals) if decimals > 0 else round(value)


def _share(timed: TimedModel) -> str | None:
    share = timed.shares.compute if timed.shares else None
    return None if share is None else f"{share:.0%}" if share >= LEAST_SHOWN else f"<{LEAST_SHOWN:.0%}"


def _unshared(session: Comparison) -> Iterator[str]:
    """Why models have no share of the matrix limit."""
    reasons: dict[str, list[str]] = {}
    for name, timed in session.models.items():
        if timed.shares is not None and timed.shares.compute is None and timed.shares.reason:
            reasons.setdefault(timed.shares.reason, []).append(name)
    yield from (f"no share of the matrix limit for {', '.join(names)}: {why}" for why, names in reasons.items())


def _percent(share: float) -> str:
    return f"±{share:.1%}" if share < 0.1 else f"±{share:.0%}"
