"""What was found out about speed, as rows of words: timings, noise, grid, load, and shares of the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from compress.measure.result_base import Score
from compress.measure.roofline.roofline import MachineLimits
from compress.measure.roofline.roofline_result import KernelRate
from compress.measure.timing.latency import Latency, Timing, UnderLoad, ratio
from compress.report.format_numbers import (
    ABSENT,
    format_bandwidth,
    format_count,
    format_milliseconds,
    format_op_rate,
    format_percent,
    format_ratio,
    format_seconds,
    format_size,
)
from compress.report.report_schema import GridCell, LedgerRow, Report, TargetResult
from compress.report.tables import throughput_unit
from compress.report.tables.table_type import Cells, Table


def timings(report: Report, title: str) -> Table:
    """The model alone: every quantile, and how steady it was."""
    on_device = any(place.latency.device for _, place in places(report, title))
    own_clock = ("device p50",) if on_device else ()
    rate = throughput_unit.rate(report)
    columns = ("model", "variant", "timing", "p50", "95 %", "p95", "p99", *own_clock, "spread", rate, "runs with")

    def cells(row: LedgerRow, place: TargetResult) -> Cells:
        latency = place.latency
        p50 = latency.model.p50 if latency.model else None
        return {
            "timing": latency.status,
            "p50": p50_of(latency),
            "95 %": f"{format_milliseconds(p50.low)} to {format_milliseconds(p50.high)}" if p50 else ABSENT,
            "p95": _quantile(latency.model, "p95"),
            "p99": _quantile(latency.model, "p99"),
            "device p50": _quantile(latency.device, "p50"),
            "spread": format_percent(latency.model.spread if latency.model else None),
            rate: format_count(latency.rows_per_second),
            "runs with": _runtime(latency) or latency.reason or ABSENT,
        }

    if not any(place.latency.timed for _, place in places(report, title)):
        return Table(columns, ())  # the verdict and the remarks say why
    return _each(report, title, columns, cells, left={"timing", "runs with"}, texts={"runs with"})


def whole(report: Report, title: str) -> Table:
    """From text to answer, from nothing to the first answer, and the memory of the process that was timed."""
    ends = ("end to end p50", "end to end p95", "end to end p99")
    columns = ("model", "variant", *ends, "loading", "first answer", "resident", "peak", "on the device")

    def cells(row: LedgerRow, place: TargetResult) -> Cells:
        latency = place.latency
        return {
            **{name: _quantile(latency.end_to_end, name.rpartition(" ")[2]) for name in ends},
            "loading": format_seconds(latency.load_seconds),
            "first answer": format_seconds(latency.first_answer_seconds),
            "resident": format_size(latency.resident_memory),
            "peak": format_size(latency.peak_memory),
            "on the device": format_size(latency.device_memory),
        }

    return _each(report, title, columns, cells).without_empty()


def noise(report: Report, title: str) -> Table:
    """What else happened during the turns, and what precision the session's time bought."""
    columns = (
        *(
            "model",
            "variant",
            "precision",
            "time spent",
            "other load",
            "cores beside",
            "stolen",
            "put off",
            "throttled",
            "accelerator",
        ),
        "unstable because",
    )

    def cells(row: LedgerRow, place: TargetResult) -> Cells:
        latency, seen = place.latency, place.latency.noise
        return {
            "precision": f"±{format_percent(latency.precision)}" if latency.precision is not None else ABSENT,
            "time spent": format_seconds(latency.seconds),
            "other load": format_percent(seen.other_load if seen else None),
            "cores beside": format_percent(seen.beside if seen else None),
            "stolen": format_percent(seen.stolen if seen else None),
            "put off": f"{seen.preempted:.1f}/s" if seen and seen.preempted is not None else ABSENT,
            "throttled": ABSENT if seen is None or seen.throttled is None else f"{seen.throttled:,}×",
            "accelerator": _accelerator(latency),
            "unstable because": (latency.reason or ABSENT) if latency.status == "unstable" else ABSENT,
        }

    left = {"unstable because"}
    return _each(report, title, columns, cells, left=left, texts=left).without_empty()


def _accelerator(latency: Latency) -> str:
    """What others used of it; or what could not be seen of it, which a timing tells that nothing disturbed."""
    seen = latency.noise
    if seen is not None and seen.device_load is not None:
        return format_percent(seen.device_load)
    return (latency.reason if latency.status == "measured" else None) or ABSENT


def under_load(report: Report, title: str) -> Table:
    """Throughput and waiting, a column for each number of callers."""
    found = [(row, place.latency.under_load) for row, place in places(report, title) if place.latency.under_load]
    numbers = sorted({load.callers for _, loads in found for load in loads})
    names = {number: f"{number} caller{'' if number == 1 else 's'}" for number in numbers}
    rows = tuple(
        {
            "model": row.model,
            "variant": row.variant.name,
            **dict.fromkeys(names.values(), ABSENT),
            **{
                names[load.callers]: f"{_hint(load)}{format_count(load.rows_per_second)}/s, {_waits(load)}"
                for load in loads
            },
        }
        for row, loads in found
    )
    return Table(("model", "variant", *names.values()), rows, frozenset(names.values()))


def _hint(load: UnderLoad) -> str:
    return "≈ " if load.unstable else ""


def _waits(load: UnderLoad) -> str:
    return format_milliseconds(load.p95) if load.p95 is not None else f"p50 {format_milliseconds(load.p50)}"


def grid(report: Report, title: str) -> Table:
    """A row a variant, a column a batch and length: its median, and the gain over the reference in the same rounds."""
    cells = report.grid.get(title, ())
    columns = ("model", "variant", *(grid_name(cell) for cell in cells))
    rows = tuple(
        {
            "model": row.model,
            "variant": row.variant.name,
            **{grid_name(cell): _grid_cell(cell, row.key, report.teacher) for cell in cells},
        }
        for row, _ in places(report, title)
        if cells
    )
    return Table(columns, rows, frozenset(columns[2:]))


def grid_name(cell: GridCell) -> str:
    """`8 × 128`, batch by length."""
    return f"{cell.batch} × {cell.length}"


def shares(report: Report, title: str) -> Table:
    """How much of the machine each variant used while it answered."""
    columns = (
        *("model", "variant", "operations/s", "of the matrix rate", "measured with", "bytes/s", "of the bandwidth"),
        "why not",
    )

    def cells(row: LedgerRow, place: TargetResult) -> Cells:
        found = place.shares
        return {
            "operations/s": format_op_rate(found.operations_per_second if found else None),
            "of the matrix rate": format_percent(found.compute if found else None),
            "measured with": (found.kernel if found else None) or ABSENT,
            "bytes/s": format_bandwidth(found.bytes_per_second if found else None),
            "of the bandwidth": format_percent(found.bandwidth if found else None),
            "why not": (found.reason if found else None) or ABSENT,
        }

    if not any(place.shares for _, place in places(report, title)):
        return Table(columns, ())
    left = {"measured with", "why not"}
    return _each(report, title, columns, cells, left=left, texts={"why not"}).without_empty()


def limits(given: Sequence[MachineLimits]) -> Table:
    """What the machine can do at most, and what could not be tried."""
    columns = ("device", "threads", "limit", "at most", "measured with", "at")
    rows: list[Cells] = []
    for each in given:
        place = {"device": each.device, "threads": str(each.threads)}
        for name in ("fp32", "bf16", "fp16", "int8"):
            rate = each.rate(name)
            if rate is not None:
                rows.append({**place, "limit": f"{name} matrix rate", **_rate(rate)})
        if each.bandwidth is not None:
            told = {
                "at most": format_bandwidth(each.bandwidth),
                "measured with": each.bandwidth_kernel or ABSENT,
            }
            rows.append({**place, "limit": "memory bandwidth", **told, "at": ABSENT})
        for name, reason in each.missing.items():
            rows.append(
                {
                    **place,
                    "limit": name,
                    "at most": ABSENT,
                    "measured with": reason,
                    "at": ABSENT,
                }
            )
    return Table(columns, tuple(rows), frozenset({"threads", "at most"}), texts=frozenset({"measured with"}))


def places(report: Report, title: str) -> list[tuple[LedgerRow, TargetResult]]:
    """The rows that run at a target, with what was found there."""
    return [(row, row.targets[title]) for row in report.rows if title in row.targets]


def p50_of(latency: Latency) -> str:
    """The median, marked where it is no more than a hint: `≈ 0.61 ms`."""
    shown = _quantile(latency.model, "p50")
    return f"≈ {shown}" if latency.status == "unstable" and latency.model else shown


def unstable_reasons(report: Report, title: str, *keys: str) -> list[str]:
    """Reasons why timings of the given rows are unstable, each with its rows: `a, b: the rounds' medians …`."""
    reasons = (
        (key, result.latency.reason or "no reason was recorded")
        for key in dict.fromkeys(keys)
        if (row := report.row(key)) and (result := row.targets.get(title)) and result.latency.status == "unstable"
    )
    return [f"{', '.join(names)}: {reason}" for reason, names in group_by_reason(reasons).items()]


def group_by_reason(reasons: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """From pairs of key and reason, the keys of each reason."""
    groups: dict[str, list[str]] = {}
    for key, reason in reasons:
        groups.setdefault(reason, []).append(key)
    return groups


def _rate(rate: KernelRate) -> Cells:
    return {"at most": format_op_rate(rate.value), "measured with": rate.kernel, "at": rate.size}


def _grid_cell(cell: GridCell, key: str, reference: str) -> str:
    latency = cell.latencies.get(key)
    if latency is None or latency.model is None:
        return latency.status if latency else ABSENT
    other = cell.latencies.get(reference)
    gain: Score | None = ratio(other, latency) if other and key != reference else None
    return p50_of(latency) + (f" ({format_ratio(gain.value)})" if gain else "")


def _runtime(latency: Latency) -> str:
    return " ".join(str(latency.runs_with[name]) for name in ("runtime", "version") if name in latency.runs_with)


def _quantile(timing: Timing | None, name: str) -> str:
    found = {"p50": timing.p50, "p95": timing.p95, "p99": timing.p99}[name] if timing else None
    return format_milliseconds(found.value if found else None)


def _each(
    report: Report,
    title: str,
    columns: tuple[str, ...],
    cells: Callable[[LedgerRow, TargetResult], Cells],
    left: frozenset[str] | set[str] = frozenset(),
    texts: frozenset[str] | set[str] = frozenset(),
) -> Table:
    """A row a variant; all but the first two columns and ``left`` hold numbers."""
    rows = tuple(
        {"model": row.model, "variant": row.variant.name, **cells(row, place)} for row, place in places(report, title)
    )
    return Table(columns, rows, frozenset(columns[2:]) - left, texts=frozenset(texts))
