"""Tables of a target's results: the ledger, packaged formats, stages, comparisons of the winner, gate and steps."""

import math
import re
from collections.abc import Iterable

from compress import format_numbers as fmt
from compress.measure.result_base import Score
from compress.report.report_schema import LedgerRow, Report
from compress.report.retention import gain_over_probe, larger_is_better
from compress.report.run_facts import StepCost
from compress.report.speedup_breakdown import fastest_variant, speedup, speedup_stages
from compress.report.tables.quality_tables import format_above, format_change, format_quality
from compress.report.tables.speed_tables import cost_of_texts, format_p50, shows_costs
from compress.select.ledger import PackagedFormat, TargetResult, Verdict
from compress.tables import Cells, Table, make_table

MILLION = "1M texts"
"""The column with the price of a million texts."""


def ledger_table(report: Report, title: str) -> Table:
    """One row a model and variant with its scores, speed, size and cost on a target, and the baseline's row.

    What decides comes first: a phone shows five columns, and the others where the table is scrolled.
    """
    verdict = report.verdict(title)
    metric = f"{fmt.metric(report.task.metric)} (95 %)"
    # A variant without a result there does not run on such a device, unless it could not be built.
    shown = [row for row in report.rows if report.result(row.key, title) or row.status != "ok"]
    winner = next((index for index, row in enumerate(shown) if verdict and row.key == verdict.winner), None)
    rows: list[Cells] = [
        _ledger_cells(report, row, title, metric, is_winner=index == winner) for index, row in enumerate(shown)
    ]
    rows += [
        {
            "model": fmt.drop_article(name),
            "variant": fmt.ABSENT,
            metric: format_quality(baseline),
            "vs teacher": format_change(baseline.versus_teacher, baseline.larger_is_better),
            "gate": "baseline",
        }
        for name, baseline in report.baselines.items()
    ]
    if report.service:
        cost = fmt.money(report.service.cost_of_million)
        rows.append({"model": report.service.model, "variant": fmt.ABSENT, MILLION: cost, "gate": "service"})
    return make_table(rows, left=("gate",), winner=winner)


UNSTABLE = ", unstable"
MARK = "» "
"""In front of the winner's name in the terminal; other names are indented as far."""
LONGEST_LINE = 19
"""Characters of `model/variant` in one line that leave room for the other columns at a width of 80."""


def closing_table(report: Report, title: str, most: int | None = None, *, narrow: bool = False) -> tuple[Table, int]:
    """Return the ledger of a target for the terminal, and how many rows it leaves out.

    The winner comes first, the others follow by their speed, and baselines are last. Of more than ``most`` rows the
    slowest are left out, the best variant of each model last, and never the teacher, with which all are compared. A
    ``narrow`` one has long names in two lines, and fits 80 columns.
    """
    verdict = report.verdict(title)
    rows = [row for row in report.rows if report.result(row.key, title) or row.status != "ok"]
    by_speed = sorted(
        rows, key=lambda row: (not (verdict and row.key == verdict.winner), _time_of_call(report, row, title))
    )
    best = [fastest_variant(report, model, title) for model in dict.fromkeys(row.model for row in rows)]
    always = [row for row in by_speed if row.key == report.teacher or row is by_speed[0]]
    room = len(rows) if most is None else max(most - len(report.baselines), len(always))
    others = sorted((row for row in by_speed if row not in always), key=lambda row: row not in best)
    kept = [*always, *others[: room - len(always)]]
    shown = [row for row in by_speed if row in kept]
    cells = [
        _closing_cells(report, row, title, is_winner=bool(verdict and row.key == verdict.winner), narrow=narrow)
        for row in shown
    ]
    cells += [
        {
            "model and variant": _fold(f"  {fmt.drop_article(name)}", narrow=narrow),
            "score": fmt.score(baseline.primary.value, baseline.larger_is_better),
            "change": format_change(baseline.versus_teacher, baseline.larger_is_better),
            "gate": "baseline",
        }
        for name, baseline in report.baselines.items()
    ]
    return make_table(cells, names=1, left=("gate",)), len(rows) - len(shown)


def closing_title(report: Report, title: str) -> str:
    """Return `my on cpu: accuracy on test, of 100`, with what its scores are and which ones are good."""
    scale = "of 100" if larger_is_better(report, title) else "lower is better"
    verdict = report.verdict(title)
    won = f"; {MARK.strip()} won" if verdict and verdict.winner else ""
    return f"{report.name} on {title}: {fmt.metric(report.task.metric)} on test, {scale}{won}"


def _time_of_call(report: Report, row: LedgerRow, title: str) -> float:
    """Return the time of a call, by which rows are sorted; infinity where it was not timed."""
    result = report.result(row.key, title)
    time = result.latency.typical() if result else None
    return time.value if time else math.inf


def _closing_cells(report: Report, row: LedgerRow, title: str, *, is_winner: bool, narrow: bool) -> Cells:
    result, full = report.result(row.key, title), _ledger_cells(report, row, title, "", is_winner=False)
    test = result.test if result else None
    return {
        "model and variant": _fold((MARK if is_winner else "  ") + row.key, narrow=narrow),
        "score": fmt.score(test.primary.value, test.larger_is_better) if test else fmt.ABSENT,
        "change": full["vs teacher"],
        "p50": full["p50"].replace(" mean", "\n  mean") if narrow else full["p50"],
        **{column: full[column] for column in ("from text", "faster", "size") if column in full},
        # The sign in front of the time says that it was unstable, and the mark which row won.
        "gate": full["gate"].removesuffix(UNSTABLE),
    }


def _fold(name: str, *, narrow: bool) -> str:
    """Break a name that is too long for a narrow table after a slash, hyphens or spaces."""
    if not narrow or len(name) <= LONGEST_LINE + len(MARK):
        return name
    lines = [name[: len(MARK)]]
    for piece in re.split(r"(?<=[/\-_. ])", name[len(MARK) :]):
        if len(lines[-1]) > len(MARK) and len(lines[-1]) + len(piece.rstrip()) > LONGEST_LINE + len(MARK):
            lines.append(" " * len(MARK))
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _ledger_cells(report: Report, row: LedgerRow, title: str, metric: str, *, is_winner: bool) -> Cells:
    result, teacher = report.result(row.key, title), report.row(report.teacher)
    test = result.test if result else None
    faster = speedup(report, teacher, row, title) if teacher and teacher is not row else None
    change = test.versus_teacher if test and row is not teacher else None
    untimed = _untimed(result)
    return {
        **row.names,
        metric: format_quality(test),
        "p50": format_p50(result.latency) if result and not untimed else untimed or fmt.ABSENT,
        "faster": fmt.ratio(faster.value) if faster else untimed or fmt.ABSENT,
        **_from_text(report, result),
        "gate": _gate_state(report, row, result, is_winner=is_winner),
        "vs teacher": format_change(change, larger_is_better(report)),
        "size": fmt.size(row.bytes_total),
        "cost": fmt.seconds(row.cost_seconds),
        **({MILLION: fmt.money(cost_of_texts(report, title, result))} if shows_costs(report, title) else {}),
    }


def _from_text(report: Report, result: TargetResult | None) -> Cells:
    """Return the time from text to answer, where rows are ranked by it."""
    if report.rules.rank_by != "end_to_end":
        return {}
    time = result.latency.typical("end_to_end") if result else None
    return {"from text": fmt.milliseconds(time.value) if time else fmt.ABSENT}


def _gate_state(report: Report, row: LedgerRow, result: TargetResult | None, *, is_winner: bool) -> str:
    if row.status != "ok":
        return row.status
    if result is not None and not result.latency.timed and result.select is None:
        return result.latency.status
    if row.key == report.teacher:
        return "reference"
    if result is None or result.gate is None:
        return "baseline"
    undecided = ", undecided" if result.gate.outcome == "undecided" else ""
    return (f"winner{undecided}" if is_winner else result.gate.state) + _unstable(result)


def _untimed(result: TargetResult | None) -> str:
    """The text of speed columns for a row that was scored and not timed."""
    if result is None or result.latency.timed or result.select is None:
        return ""
    return "failed" if result.latency.status == "failed" else "not timed"


def _unstable(result: TargetResult | None) -> str:
    return UNSTABLE if result is not None and result.latency.status == "unstable" else ""


def stage_table(report: Report, title: str, key: str) -> Table:
    """Cost and gain of each stage from the teacher to ``key`` on a target."""
    metric, larger = fmt.metric(report.task.metric), larger_is_better(report)
    rows: list[Cells] = [
        {
            "stage": stage.name,
            "row": stage.after.key,
            **_speedup_cells(stage.speedup),
            "smaller": fmt.ratio(stage.smaller),
            metric: fmt.signed(stage.score_change, larger),
            "time": fmt.seconds(stage.seconds),
        }
        for stage in speedup_stages(report, key, title)
    ]
    if not rows:
        return make_table([])
    start: Cells = {**dict.fromkeys(rows[0], fmt.ABSENT), "stage": "teacher in PyTorch", "row": report.teacher}
    gain = gain_over_probe(report)
    if gain is None:
        return make_table([start, *rows])
    probe = {**dict.fromkeys(rows[0], fmt.ABSENT), "stage": fmt.drop_article(report.probe_name)}
    change = fmt.signed(gain.value, larger) + ("" if gain.is_significant else " (by chance)")
    return make_table([probe, {**start, metric: change, "time": fmt.seconds(gain.seconds)}, *rows])


def comparison_table(report: Report, verdict: Verdict) -> Table:
    """The winner compared with the teacher and with every model's best variant."""
    winner, title = report.row(verdict.winner), verdict.target
    compared = [(comparison, report.row(comparison.key)) for comparison in verdict.comparisons]
    return make_table(
        {
            "compared with": comparison.against,
            "row": comparison.key,
            **_speedup_cells(comparison.speedup),
            "end to end": _factor(speedup(report, other, winner, title, "end_to_end") if other and winner else None),
            "smaller": fmt.ratio(comparison.smaller),
            "score retained": fmt.percent(comparison.kept),
            "above the baseline": format_above(report, title, comparison.kept_above_floor),
        }
        for comparison, other in compared
    )


def _speedup_cells(factor: Score | None) -> Cells:
    return {"faster": _factor(factor), "95 %": fmt.span(factor, fmt.ratio)}


def _factor(factor: Score | None) -> str:
    return fmt.ratio(factor.value if factor else None)


def gate_table(report: Report, title: str) -> Table:
    """The loss of every candidate on select, and the allowed one."""
    larger = larger_is_better(report)
    return make_table(
        (
            {
                **row.names,
                "loss on select": fmt.points(result.gate.drop, larger),
                "allowed": fmt.points(result.gate.allowed, larger),
                "outcome": result.gate.state,
                "reason": result.gate.why or fmt.ABSENT,
            }
            for row, result in report.rows_at(title)
            if result.gate is not None
        ),
        left=("outcome",),
        sentences=("reason",),
    )


def fallback_table(report: Report) -> Table:
    """The quantized variants that lost too much with every layer in INT8, and the layers that returned to fp32."""
    larger = larger_is_better(report)
    return make_table(
        (
            {
                **row.names,
                "loss in INT8": fmt.points(row.fallback.loss.drop, larger),
                "allowed": fmt.points(row.fallback.loss.allowed, larger),
                "loss now": fmt.points(row.fallback.final.drop, larger),
                "time": fmt.ratio(row.fallback.slowdown),
                "fp32 layers": ", ".join(row.fallback.fp32_layers) or f"none: {row.fallback.reason}",
            }
            for row in report.rows
            if row.fallback is not None and row.fallback.loss.outcome == "missed"
        ),
        sentences=("fp32 layers",),
    )


def step_table(report: Report) -> Table:
    """The steps of the run with their time."""
    rows = ({"step": step.name, "time": fmt.seconds(step.seconds), "state": _state(step)} for step in report.steps)
    return make_table(rows, names=1, left=("state",))


def _state(step: StepCost) -> str:
    if step.status != "ok":
        return f"{step.status}: {step.reason}" if step.reason else step.status
    return "from an earlier run" if step.reused else "done"


def packaged_table(report: Report, packaged: Iterable[PackagedFormat]) -> Table:
    """Every format with its score on test in its own runtime, its size, and the verdict of the gate on select."""
    metric, larger = f"{fmt.metric(report.task.metric)} (95 %)", larger_is_better(report)
    return make_table(
        (
            {
                "target": each.target,
                "format": each.format,
                "variant": each.variant.name if each.variant else fmt.ABSENT,
                metric: format_quality(each.test),
                "vs teacher": format_change(each.test.versus_teacher if each.test else None, larger),
                "size": fmt.size(each.footprint.bytes_total if each.footprint else None),
                "gate": each.outcome,
                "reason": _reason(each),
            }
            for each in packaged
        ),
        names=3,
        left=("gate",),
        sentences=("reason",),
    )


def _reason(packaged: PackagedFormat) -> str:
    reasons = packaged.gate.reasons if packaged.gate else ()
    left_out = () if packaged.is_delivered or packaged.variant is None else ("not delivered",)
    return "; ".join([*left_out, *reasons]) or packaged.reason or fmt.ABSENT
