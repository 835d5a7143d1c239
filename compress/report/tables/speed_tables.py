"""Tables of speed: timings, interference, batch and length, several callers, and shares of the machine's limits.

With the unit of a timing, and what a million texts cost at that speed.
"""

from collections.abc import Sequence

from compress import format_numbers as fmt
from compress.errors import group_by_reason, pluralize
from compress.measure.result_base import Score
from compress.measure.roofline.roofline import LimitShares, MachineLimits
from compress.measure.timing.latency import Latency, Noise, UnderLoad, ratio
from compress.report.report_schema import Report
from compress.report.run_facts import TargetFacts
from compress.select.ledger import GridCell, TargetResult
from compress.tables import Cells, Table, make_table
from compress.tasks import kind_of


def timing_table(report: Report, title: str) -> Table:
    """Quantiles of the model alone, and how steady they were; no rows if nothing was timed."""
    results = report.rows_at(title)
    if not any(result.latency.timed for _, result in results):
        return make_table(())  # the verdict and the remarks give the reason
    on_device = any(result.latency.device for _, result in results)
    by_mean = any(result.latency.by_mean for _, result in results)
    rows = []
    for row, result in results:
        latency = result.latency
        runtime = " ".join(str(latency.runs_with[name]) for name in ("runtime", "version") if name in latency.runs_with)
        rows.append(
            {
                **row.names,
                "timing": latency.status,
                "p50": _marked(latency, _milliseconds(latency.quantile("p50"))),
                **({"mean": _milliseconds(latency.model.mean if latency.model else None)} if by_mean else {}),
                "95 %": fmt.span(latency.typical(), fmt.milliseconds),
                "p95": _milliseconds(latency.quantile("p95")),
                "p99": _milliseconds(latency.quantile("p99")),
                **({"device p50": _milliseconds(latency.quantile("p50", "device"))} if on_device else {}),
                "spread": fmt.percent(latency.model.spread if latency.model else None),
                f"{timed_units(report)}/s": fmt.rate(latency.rows_per_second),
                "runs with": runtime or latency.reason or fmt.ABSENT,
            }
        )
    return make_table(rows, left=("timing",), sentences=("runs with",))


def end_to_end_table(report: Report, title: str) -> Table:
    """Time from text to prediction, time to the first prediction, and memory of the timed process."""
    return make_table(
        {
            **row.names,
            "end to end p50": _milliseconds(result.latency.quantile("p50", "end_to_end")),
            "end to end p95": _milliseconds(result.latency.quantile("p95", "end_to_end")),
            "end to end p99": _milliseconds(result.latency.quantile("p99", "end_to_end")),
            "loading": fmt.seconds(result.latency.load_seconds),
            "first prediction": fmt.seconds(result.latency.first_answer_seconds),
            "resident": fmt.size(result.latency.resident_memory),
            "peak": fmt.size(result.latency.peak_memory),
            "on the device": fmt.size(result.latency.device_memory),
        }
        for row, result in report.rows_at(title)
    ).without_empty()


def interference_table(report: Report, title: str) -> Table:
    """What else the machine did while each row was timed, and the precision that was reached."""
    rows = []
    for row, result in report.rows_at(title):
        latency, noise = result.latency, result.latency.noise or Noise()
        reasons = {latency.status: latency.reason or fmt.ABSENT}
        rows.append(
            {
                **row.names,
                "precision": fmt.ABSENT if latency.precision is None else f"±{fmt.percent(latency.precision)}",
                "time spent": fmt.seconds(latency.seconds),
                "other load": fmt.percent(noise.other_load),
                "neighbouring cores": fmt.percent(noise.beside),
                "stolen": fmt.percent(noise.stolen),
                "preempted": fmt.ABSENT if noise.preempted is None else f"{noise.preempted:.1f}/s",
                "throttled": fmt.ABSENT if noise.throttled is None else f"{noise.throttled:,}×",
                "accelerator": fmt.percent(noise.device_load),
                "unstable because": reasons.get("unstable", fmt.ABSENT),
                "note": reasons.get("measured", fmt.ABSENT),
            }
        )
    return make_table(rows, sentences=("unstable because", "note")).without_empty()


def load_table(report: Report, title: str) -> Table:
    """Throughput and p95 for each number of concurrent callers."""
    results = [(row, result.latency.under_load) for row, result in report.rows_at(title) if result.latency.under_load]
    counts = sorted({load.callers for _, loads in results for load in loads})
    rows = []
    for row, loads in results:
        shown = {load.callers: _format_load(load) for load in loads}
        rows.append({**row.names, **{pluralize(count, "caller"): shown.get(count, fmt.ABSENT) for count in counts}})
    return make_table(rows)


def _format_load(load: UnderLoad) -> str:
    latency = f"p50 {fmt.milliseconds(load.p50)}" if load.p95 is None else fmt.milliseconds(load.p95)
    return f"{'≈ ' if load.unstable else ''}{fmt.rate(load.rows_per_second)}/s, {latency}"


def grid_table(report: Report, title: str) -> Table:
    """For each batch and length the median of every variant, and its speedup over the teacher in the same rounds."""
    cells = report.grid.get(title, ())
    return make_table(
        {
            **row.names,
            **{f"{cell.batch} × {cell.length}": _grid_text(cell, row.key, report.teacher) for cell in cells},
        }
        for row, _ in report.rows_at(title)
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
    shared = [(row, result.shares or LimitShares()) for row, result in report.rows_at(title)]
    return make_table(
        (
            {
                **row.names,
                "operations/s": fmt.op_rate(shares.operations_per_second),
                "of the matrix rate": fmt.percent(shares.compute),
                "measured with": shares.kernel or fmt.ABSENT,
                "bytes/s": fmt.bandwidth(shares.bytes_per_second),
                "of the bandwidth": fmt.percent(shares.bandwidth),
                "missing because": shares.reason or fmt.ABSENT,
            }
            for row, shares in shared
        ),
        left=("measured with",),
        sentences=("missing because",),
    ).without_empty()


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
        rows += ({**names, "limit": name, "measured with": reason} for name, reason in one.missing.items())
    return make_table(rows, names=1, left=("limit", "at"), sentences=("measured with",))


def format_p50(latency: Latency) -> str:
    """The median, or a cascade's mean, marked if it is unstable: `≈ 0.61 ms`."""
    shown = _milliseconds(latency.typical()) + (" mean" if latency.by_mean and latency.timed else "")
    return _marked(latency, shown)


def _marked(latency: Latency, shown: str) -> str:
    return f"≈ {shown}" if latency.status == "unstable" and latency.timed else shown


def unstable_reasons(report: Report, title: str, *keys: str) -> list[str]:
    """Reasons why timings of the given rows are unstable, each with its rows: `a, b: the rounds' medians …`."""
    latencies = {row.key: result.latency for row, result in report.rows_at(title)}
    reasons = (
        (key, latencies[key].reason or "no reason was recorded")
        for key in dict.fromkeys(keys)
        if key in latencies and latencies[key].status == "unstable"
    )
    return [f"{names}: {reason}" for reason, names in group_by_reason(reasons).items()]


def _milliseconds(score: Score | None) -> str:
    return fmt.milliseconds(score.value if score else None)


ROW = "row"


def timed_unit(report: Report) -> str:
    """What a call at batch 1 processes: `row`, `choice`, `candidate`, `window` or `text`."""
    return kind_of(report.task).unit_name(report.task)


def timed_units(report: Report) -> str:
    """The plural of the unit."""
    return f"{timed_unit(report)}s"


def describe_call(report: Report) -> str:
    """What is timed: `one call`, and for rows of several examples, of which ones."""
    if timed_unit(report) == ROW:
        return "one call"
    mean = report.data.examples_per_row
    per_row = f" (a test row has {mean:.1f} on average)" if mean else ""
    return f"one call with a batch of {timed_units(report)}{per_row}; end to end covers complete rows"


def per_call_suffix(report: Report, target: TargetFacts) -> str:
    """What one call processed, unless it is rows: ` for 1 choice`, ` for 8 choices`."""
    if timed_unit(report) == ROW:
        return ""
    return f" for {pluralize(target.batch, timed_unit(report))}"


TEXTS, SECONDS_PER_HOUR = 1_000_000, 3600.0


def shows_costs(report: Report, title: str) -> bool:
    """Return whether there are prices to compare: of the target's hour, or of the service."""
    return report.target(title).price is not None or report.service is not None


def cost_of_texts(report: Report, title: str, result: TargetResult | None) -> float | None:
    """Return the price of the time that one process needs for a million texts, tokenizing and decoding included.

    None where the target has no price, or texts were not timed from end to end.
    """
    target, latency = report.target(title), result.latency if result else None
    if target.price is None or latency is None or latency.rows_per_second is None:
        return None
    alone, whole = latency.typical(), latency.typical("end_to_end")
    if alone is None or whole is None:
        return None
    around = (whole.value - alone.value) / 1e3 / target.batch
    return TEXTS * (1.0 / latency.rows_per_second + max(0.0, around)) / SECONDS_PER_HOUR * target.price
