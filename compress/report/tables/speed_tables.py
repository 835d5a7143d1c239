"""Tables of speed: timings, interference, batch and length, several callers, and shares of the machine's limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compress.measure.roofline.roofline import MachineLimits
from compress.measure.timing.latency import Latency, Timing, ratio
from compress.report import format_numbers as fmt
from compress.report.report_schema import GridCell, Report
from compress.report.tables.table_type import Cells, Table, make_table
from compress.report.tables.throughput_unit import throughput_column


def timing_table(report: Report, title: str) -> Table:
    """Quantiles of the model alone, and how steady they were; no rows if nothing was timed."""
    results = report.results(title)
    if not any(result.latency.timed for _, result in results):
        return make_table(())  # the verdict and the remarks give the reason
    on_device = any(result.latency.device for _, result in results)
    rows = []
    for row, result in results:
        latency = result.latency
        runtime = " ".join(str(latency.runs_with[name]) for name in ("runtime", "version") if name in latency.runs_with)
        rows.append(
            {
                **row.names,
                "timing": latency.status,
                "p50": format_p50(latency),
                "95 %": fmt.span(latency.model.p50 if latency.model else None, fmt.milliseconds),
                "p95": _quantile(latency.model, "p95"),
                "p99": _quantile(latency.model, "p99"),
                **({"device p50": _quantile(latency.device, "p50")} if on_device else {}),
                "spread": fmt.percent(latency.model.spread if latency.model else None),
                throughput_column(report): fmt.count(latency.rows_per_second),
                "runs with": runtime or latency.reason or fmt.ABSENT,
            }
        )
    return make_table(rows, left=("timing",), sentences=("runs with",))


def end_to_end_table(report: Report, title: str) -> Table:
    """Time from text to prediction, time to the first prediction, and memory of the timed process."""
    return make_table(
        {
            **row.names,
            **{f"end to end {name}": _quantile(result.latency.end_to_end, name) for name in ("p50", "p95", "p99")},
            "loading": fmt.seconds(result.latency.load_seconds),
            "first prediction": fmt.seconds(result.latency.first_answer_seconds),
            "resident": fmt.size(result.latency.resident_memory),
            "peak": fmt.size(result.latency.peak_memory),
            "on the device": fmt.size(result.latency.device_memory),
        }
        for row, result in report.results(title)
    ).without_empty()


def interference_table(report: Report, title: str) -> Table:
    """What else the machine did while each row was timed, and the precision that was reached."""
    rows = []
    for row, result in report.results(title):
        latency, noise = result.latency, result.latency.noise
        preempted = noise.preempted if noise else None
        throttled = noise.throttled if noise else None
        rows.append(
            {
                **row.names,
                "precision": fmt.ABSENT if latency.precision is None else f"±{fmt.percent(latency.precision)}",
                "time spent": fmt.seconds(latency.seconds),
                "other load": fmt.percent(noise.other_load if noise else None),
                "neighbouring cores": fmt.percent(noise.beside if noise else None),
                "stolen": fmt.percent(noise.stolen if noise else None),
                "preempted": fmt.ABSENT if preempted is None else f"{preempted:.1f}/s",
                "throttled": fmt.ABSENT if throttled is None else f"{throttled:,}×",
                "accelerator": _accelerator_load(latency),
                "unstable because": (latency.reason if latency.status == "unstable" else None) or fmt.ABSENT,
            }
        )
    return make_table(rows, sentences=("unstable because",)).without_empty()


def _accelerator_load(latency: Latency) -> str:
    """Its load by other processes, or for an undisturbed timing the reason why that is not known."""
    if latency.noise is not None and latency.noise.device_load is not None:
        return fmt.percent(latency.noise.device_load)
    return (latency.reason if latency.status == "measured" else None) or fmt.ABSENT


def load_table(report: Report, title: str) -> Table:
    """Throughput and p95 for each number of concurrent callers."""
    results = [(row, result.latency.under_load) for row, result in report.results(title) if result.latency.under_load]
    counts = sorted({load.callers for _, loads in results for load in loads})
    rows = []
    for row, loads in results:
        by_count = {load.callers: load for load in loads}
        cells = row.names
        for count in counts:
            text = fmt.ABSENT
            if load := by_count.get(count):
                p95, p50 = fmt.milliseconds(load.p95), f"p50 {fmt.milliseconds(load.p50)}"
                text = f"{fmt.count(load.rows_per_second)}/s, {p50 if load.p95 is None else p95}"
                text = f"≈ {text}" if load.unstable else text
            cells[f"{count} caller{'' if count == 1 else 's'}"] = text
        rows.append(cells)
    return make_table(rows)


def grid_table(report: Report, title: str) -> Table:
    """For each batch and length the median of every variant, and its speedup over the teacher in the same rounds."""
    cells = report.grid.get(title, ())
    return make_table(
        {
            **row.names,
            **{f"{cell.batch} × {cell.length}": _grid_text(cell, row.key, report.teacher) for cell in cells},
        }
        for row, _ in report.results(title)
        if cells
    )


def _grid_text(cell: GridCell, key: str, teacher: str) -> str:
    latency, other = cell.latencies.get(key), cell.latencies.get(teacher)
    if latency is None or latency.model is None:
        return latency.status if latency else fmt.ABSENT
    gain = ratio(other, latency) if other and key != teacher else None
    return format_p50(latency) + (f" ({fmt.ratio(gain.value)})" if gain else "")


def roofline_table(report: Report, title: str) -> Table:
    """The share of the machine's limits that each variant used."""
    rows = []
    for row, result in report.results(title):
        shares = result.shares
        rows.append(
            {
                **row.names,
                "operations/s": fmt.op_rate(shares.operations_per_second if shares else None),
                "of the matrix rate": fmt.percent(shares.compute if shares else None),
                "measured with": (shares.kernel if shares else None) or fmt.ABSENT,
                "bytes/s": fmt.bandwidth(shares.bytes_per_second if shares else None),
                "of the bandwidth": fmt.percent(shares.bandwidth if shares else None),
                "missing because": (shares.reason if shares else None) or fmt.ABSENT,
            }
        )
    return make_table(rows, left=("measured with",), sentences=("missing because",)).without_empty()


def limits_table(limits: Sequence[MachineLimits]) -> Table:
    """The highest rates that any kernel reached on this machine, and what could not be measured."""
    rows: list[Cells] = []
    for one in limits:
        names = {"device": one.device, "threads": str(one.threads)}
        for name in ("fp32", "bf16", "fp16", "int8"):
            if rate := one.rate(name):
                shown = {"at most": fmt.op_rate(rate.value), "measured with": rate.kernel, "at": rate.size}
                rows.append({**names, "limit": f"{name} matrix rate", **shown})
        if one.bandwidth is not None:
            shown = {"at most": fmt.bandwidth(one.bandwidth), "measured with": one.bandwidth_kernel or fmt.ABSENT}
            rows.append({**names, "limit": "memory bandwidth", **shown})
        for name, reason in one.missing.items():
            rows.append({**names, "limit": name, "at most": fmt.ABSENT, "measured with": reason, "at": fmt.ABSENT})
    return make_table(rows, names=1, left=("limit", "at"), sentences=("measured with",))


def format_p50(latency: Latency) -> str:
    """The median, marked if it is unstable: `≈ 0.61 ms`."""
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


def _quantile(timing: Timing | None, name: str) -> str:
    score = {"p50": timing.p50, "p95": timing.p95, "p99": timing.p99}[name] if timing else None
    return fmt.milliseconds(score.value if score else None)
