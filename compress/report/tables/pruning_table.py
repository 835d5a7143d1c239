"""What pruning kept of each layer, and how a goal of speed-up was reached."""

from __future__ import annotations

from collections.abc import Sequence

from compress import format_numbers as fmt
from compress.prune.latency_table import SpeedupAttempt, SpeedupResult
from compress.report.pruned_units import PrunedStructure, PrunedUnits
from compress.report.report_schema import LedgerRow, Report
from compress.report.run_facts import TargetFacts
from compress.report.speedup_breakdown import speedup_of_cut
from compress.report.tables.machine_facts import describe_target
from compress.report.tables.speed_tables import format_p50
from compress.tables import Cells, Table, make_table


def pruning_table(structure: PrunedStructure) -> Table:
    """Return a row a layer: how many heads and FFN neurons it kept, and their share of its importance."""
    rows: list[Cells] = [
        {
            "layer": str(number),
            "heads": _count(heads),
            "their importance": _share(heads),
            "FFN neurons": _count(ffn),
            "importance of the neurons": _share(ffn),
        }
        for number, (heads, ffn) in enumerate(zip(structure.heads, structure.ffn, strict=True))
    ]
    return make_table(rows, names=1)


def describe_goal(reached: SpeedupResult) -> str:
    """A goal of speed-up and how latency was measured: `2× in onnx-int8 (1 thread, batch 1, 24 word pieces; …)`."""
    table = reached.table
    usage = table.model_dump(include={"device", "threads", "batch", "length"})
    conditions = describe_target(TargetFacts(title=table.device, **usage))
    return f"{reached.goal:g}× in {table.variant} ({conditions}; {table.processor})"


def speedup_table(report: Report, model: str, reached: SpeedupResult) -> Table:
    """Return a row for each choice that the cut timed, and one for the timing of all variants, at the cut's target."""
    structure = report.pruned[model]
    before, after, timed = speedup_of_cut(report, model, reached) or (None, None, None)
    chosen = reached.attempts[reached.chosen]
    whole = reached.table.model_time(chosen.heads, chosen.ffn) * chosen.predicted
    rows: list[Cells] = [
        {
            "": "before pruning",
            "heads": _sizes([units.total for units in structure.heads]),
            "FFN neurons": _sizes([units.total for units in structure.ffn]),
            "latency by the table": fmt.milliseconds(whole),
            "faster by the table": fmt.ABSENT,
            "faster, measured": fmt.ABSENT,
            "95 %": fmt.ABSENT,
            "p50": _p50(report, before, structure.target),
        }
    ]
    for number, attempt in enumerate(reached.attempts):
        kept = ", kept" if number == reached.chosen else ""
        measured = {"faster, measured": fmt.ratio(attempt.measured)}
        rows.append({"": f"attempt {number + 1}{kept}", **_predicted(attempt, whole), **measured})
    rows.append(
        {
            "": "timing of all variants",
            **_predicted(chosen, whole),
            "faster, measured": fmt.ratio(timed.value if timed else None),
            "95 %": fmt.span(timed, fmt.ratio),
            "p50": _p50(report, after, structure.target),
        }
    )
    return make_table(rows, names=3)


def _predicted(attempt: SpeedupAttempt, whole: float) -> Cells:
    return {
        "heads": _sizes(attempt.heads),
        "FFN neurons": _sizes(attempt.ffn),
        "latency by the table": fmt.milliseconds(whole / attempt.predicted),
        "faster by the table": fmt.ratio(attempt.predicted),
    }


def _sizes(layers: Sequence[int | None]) -> str:
    return fmt.ABSENT if None in layers else ", ".join(map(str, layers))


def _p50(report: Report, row: LedgerRow | None, title: str | None) -> str:
    result = report.result(row.key, title) if row else None
    return format_p50(result.latency) if result else fmt.ABSENT


def _count(units: PrunedUnits) -> str:
    if not units.kept:
        return "dropped"
    return f"{units.kept:,}" if units.total is None else f"{units.kept:,} of {units.total:,}"


def _share(units: PrunedUnits) -> str:
    return fmt.ABSENT if units.importance is None else fmt.percent(units.importance)
