"""What a report says of each winner: how it compares with other rows on test, what is unusual, and how it is used.

Where nothing won: what may help.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compress import format_numbers as fmt
from compress.errors import pluralize
from compress.measure.quality.quality_result import Quality
from compress.model_folder.model_info import TaskInfo
from compress.report.report_schema import LedgerRow, Report
from compress.report.report_warnings import report_warnings
from compress.report.retention import SIGNIFICANCE, quality_on_test, ratio_above_baseline, score_ratio
from compress.report.run_facts import TargetFacts
from compress.report.speedup_breakdown import fastest_variant, speedup, times_smaller
from compress.select.gate import format_change, loss_against
from compress.select.ledger import GateResult, Verdict, WinnerComparison
from compress.tasks import kind_of

MOST_HELD_BACK = 3
"""Rows faster than the winner that are named one by one."""


def compare_winners(report: Report) -> Report:
    """Return the report with comparisons in the verdict of every target, and warnings."""
    decided = report.model_copy(update={"verdicts": tuple(_compared(report, verdict) for verdict in report.verdicts)})
    return decided.model_copy(update={"remarks": (*report.remarks, *report_warnings(decided))})


def verdict_by_hand(report: Report, key: str, title: str) -> Verdict:
    """Return the verdict of a target with a row that somebody chose in place of the winner."""
    chosen = report.verdict(title)
    why = f"chosen by hand in place of {chosen.winner}" if chosen and chosen.winner else "chosen by hand"
    return Verdict(target=title, winner=key, why=why, comparisons=_comparisons(report, key, title))


def held_back_lines(verdict: Verdict) -> list[str]:
    """Return a line for each row that was faster than the winner and did not pass, the fastest first.

    The one that `Verdict.reason` describes has none.
    """
    rows = [row for row in verdict.held_back if verdict.trade is None or row.key != verdict.trade.key]
    lines = [f"held back: {row.key} ({row.text})" for row in rows[:MOST_HELD_BACK]]
    if more := rows[MOST_HELD_BACK:]:
        lines.append(f"held back: {len(more)} more, with their reasons in the report (The gate, on select)")
    return lines


def remedy(gates: Sequence[GateResult], within: str) -> str:
    """Return what may help where nothing won: rows exceed the budget, lose too much, or do one or the other.

    ``within``: what makes models smaller and faster, where there is a budget.
    """
    too_large = bool(within) and any(gate.ruled_out and gate.outcome != "missed" for gate in gates)
    too_bad = any(gate.outcome == "missed" and not gate.ruled_out for gate in gates)
    closer = "texts without labels (task.data.unlabelled) or more rows bring small models closer to their teacher"
    if too_large and too_bad:
        return f"what passes exceeds the budget, and what is within loses too much: {closer}; or allow more of either"
    return within if too_large else closer if too_bad else ""


def _compared(report: Report, verdict: Verdict) -> Verdict:
    """Compare the winner, and the row that runs everywhere, with the teacher and the best variant of every model."""
    everywhere = verdict.everywhere
    if everywhere is not None:
        compared = _comparisons(report, everywhere.winner, everywhere.target)
        everywhere = everywhere.model_copy(update={"comparisons": compared})
    changes = {
        "comparisons": _comparisons(report, verdict.winner, verdict.target),
        "contradictions": tuple(_contradictions(report, verdict)),
        "everywhere": everywhere,
    }
    return verdict.model_copy(update=changes)


def _comparisons(report: Report, key: str | None, title: str) -> tuple[WinnerComparison, ...]:
    """Compare a row with the teacher in PyTorch, and with the best variant of every model."""
    comparisons: dict[str, WinnerComparison] = {}
    if winner := report.row(key):
        models = dict.fromkeys(row.model for row in report.rows)
        others = {"the teacher in PyTorch": report.row(report.teacher)}
        others |= {f"the best variant of {model}": fastest_variant(report, model, title) for model in models}
        for against, row in others.items():
            if row is not None and row is not winner and row.key not in comparisons:
                comparisons[row.key] = _comparison(report, against, winner, row, title)
    return tuple(comparisons.values())


def _contradictions(report: Report, result: Verdict) -> Iterator[str]:
    """Yield what the winner lost on test by more than chance, in the primary metric and in the recall of classes."""
    test = quality_on_test(report, result.winner, result.target)
    if test is None or test.versus_teacher is None:
        return
    larger = test.larger_is_better
    loss = loss_against("the teacher", test.versus_teacher, report.rules.max_drop)
    if loss.outcome(strict=False) == "missed":
        yield (
            f"on test it {format_change(loss.drop, larger)} against the teacher"
            f" (p {fmt.p_value(test.versus_teacher.p_value)}), {fmt.points(loss.allowed, larger)} allowed"
        )
    teacher = quality_on_test(report, report.teacher, result.target)
    classes = teacher.per_class if teacher else {}
    for label, ours in test.per_class.items():
        chance = SIGNIFICANCE / len(test.per_class)  # one of many classes falls by chance (Bonferroni)
        fell = classes[label].recall - ours.recall if label in classes else 0.0
        if fell > 0 and ours.recall_p_value is not None and ours.recall_p_value < chance:
            rows = f"{pluralize(ours.rows, 'row')}, p {fmt.p_value(ours.recall_p_value)}"
            yield f"recall of '{label}' fell by {fmt.points(fell)} on test ({rows})"


def _comparison(report: Report, against: str, winner: LedgerRow, other: LedgerRow, title: str) -> WinnerComparison:
    scores = quality_on_test(report, winner.key, title), quality_on_test(report, other.key, title)
    return WinnerComparison(
        against=against,
        key=other.key,
        speedup=speedup(report, other, winner, title),
        smaller=times_smaller(other, winner),
        kept=score_ratio(*scores),
        kept_above_floor=ratio_above_baseline(report, *scores, title),
    )


@dataclass(frozen=True)
class Trust:
    """One reason to rely on a winner, or not to."""

    holds: bool
    text: str


def trust(report: Report, verdict: Verdict) -> Iterator[Trust]:
    """Yield what speaks for a winner and against it: the gate, test, its timing."""
    result = report.result(verdict.winner, verdict.target)
    if result is None:
        return
    if result.gate is not None and result.select is not None:
        outcome = f"gate {result.gate.outcome} on {pluralize(result.select.rows, 'row')} of select"
        yield Trust(result.gate.outcome == "passed", outcome)
    if result.test is not None:
        yield _test_agrees(report, verdict, result.test)
    if result.latency.timed:
        precise, stable = result.latency.precision, result.latency.status == "measured"
        text = f"timing stable{f', ±{precise:.1%}' if precise else ''}" if stable else "timing unstable"
        yield Trust(stable, text)
    else:
        yield Trust(False, "not timed")


def _test_agrees(report: Report, verdict: Verdict, test: Quality) -> Trust:
    """Whether the loss on test is within what is allowed too."""
    rows = pluralize(test.rows, "row")
    if verdict.contradictions or test.versus_teacher is None:
        return Trust(not verdict.contradictions, f"test {'contradicts it: ' if verdict.contradictions else ''}{rows}")
    loss = loss_against("the teacher", test.versus_teacher, report.rules.max_drop)
    states = {"passed": "test confirms it", "undecided": "test cannot confirm it", "missed": "test contradicts it"}
    outcome = loss.outcome(strict=False)
    return Trust(outcome == "passed", f"{states[outcome]}: {format_change(loss.drop, test.larger_is_better)} ({rows})")


@dataclass(frozen=True)
class LineageStep:
    """One step that led to a row."""

    name: str
    seconds: float | None
    """What it took when it ran."""
    reused: bool


def lineage(report: Report, row: LedgerRow) -> list[LineageStep]:
    """Return the steps that lead to a row, in their order, each with what it cost."""
    costs = {step.name: step for step in report.steps}
    return [
        LineageStep(name, costs[name].seconds if name in costs else None, name in costs and costs[name].reused)
        for name in row.steps
    ]


ADDRESS_OF_RUN = "runs/{name}/winner/{target}"
"""Relative to the folder in which the run was started: a page names no folder of a machine."""


def run_addresses(report: Report) -> dict[str, str]:
    """Return where a run's own folder has its winners, by target."""
    return {
        verdict.target: ADDRESS_OF_RUN.format(name=report.name, target=verdict.target)
        for verdict in report.verdicts
        if verdict.winner
    }


def predict_command(task: TaskInfo, target: TargetFacts, address: str) -> str:
    """Return the command that predicts with the model at ``address``, with as many texts as the task reads at once."""
    options = () if target.device == "cpu" else ("--device", target.device)
    texts = (f'"{text}"' for text in sample_texts(task))
    return " ".join(["compress predict", *map(shlex.quote, (address, *options)), *texts])


def predict_in_python(task: TaskInfo, target: TargetFacts, address: str) -> list[str]:
    """Return the lines of Python that predict with the model at ``address`` as the target runs it."""
    texts = sample_texts(task)
    given = f'"{texts[0]}"' if len(texts) == 1 else f"({', '.join(f'{chr(34)}{text}{chr(34)}' for text in texts)})"
    lines, placement = ["import compress"], ""
    if (target.device, target.threads) != ("cpu", 1):
        lines.append("from compress.runtime import Placement")
        placement = f', Placement("{target.device}", threads={target.threads})'
    return [*lines, f'compress.open("{address}"{placement}).predict([{given}])']


def sample_texts(task: TaskInfo) -> tuple[str, ...]:
    """Return as many texts as one input of the task has."""
    count = 3 if kind_of(task).is_variadic else len(task.text)
    return ("a text", "another text", "a third text")[:count]
