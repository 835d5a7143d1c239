"""Warnings for readers of a report: stages without gain, missing results, and limits of the figures."""

from collections.abc import Iterator
from dataclasses import dataclass

from compress import format_numbers as fmt
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.errors import group_by_reason, pluralize
from compress.measure.quality.quality_result import Quality
from compress.prune.latency_table import TOLERANCE
from compress.report.report_schema import Report
from compress.report.retention import (
    SIGNIFICANCE,
    gain_over_probe,
    is_clearly_better,
    quality_on_test,
    teacher_beats_baseline,
)
from compress.report.speedup_breakdown import Stage, speedup_of_cut, speedup_stages
from compress.report.tables.machine_facts import describe_length_limit, truncated_of_test
from compress.report.tables.speed_tables import cost_of_texts
from compress.runtimes import RUNTIMES
from compress.steps import STEPS
from compress.tasks.validate_task import label_problems

NAMED = 3
"""Rows of the ledger that a warning names; of more it says how many."""
TRUNCATED_SHARE = 0.05
"""Share of truncated rows from which a warning is given."""

MORE_ROWS = "data.select gives more rows, data.select_share holds more of train back."

RULE_OF_THREE = 3.0
"""An event that was not seen in n rows has a probability of at most 3 / n (95 %; Hanley and Lippman-Hand, 1983)."""


@dataclass(frozen=True)
class Remark:
    """A warning, and what to do about it."""

    text: str
    todo: str = ""


def report_warnings(report: Report) -> tuple[str, ...]:
    """Return all warnings, the most important first; gate results and verdicts must be present."""
    return tuple(remark.text for remark in _remarks(report))


def ranked_remarks(report: Report) -> list[Remark]:
    """Return the report's remarks and what to do: those that change which model is used, then which figures hold.

    What test contradicts of a winner comes before all; remarks of other origin, and of earlier versions, come last.
    """
    todo = {remark.text: remark.todo for remark in _remarks(report)}
    todo_then = "Look at its classes and rows before using it."
    contradicted = [
        Remark(f"On {verdict.target} {'; '.join(verdict.contradictions)}.", todo_then)
        for verdict in report.verdicts
        if verdict.contradictions
    ]
    known = [Remark(text, todo[text]) for text in todo if text in report.remarks]
    return [*contradicted, *known, *(Remark(text) for text in report.remarks if text not in todo)]


def _remarks(report: Report) -> Iterator[Remark]:
    """Yield every warning with what to do, in the order of what it changes."""
    for found, todo in (
        (_cascades, "Its mean time depends on how many texts the first model is sure of: watch that share in use."),
        (_undecided, "Give more select rows, or allow a larger loss (gate.max_drop)."),
        (_few_select_rows, "Give more select rows before relying on the gate."),
        (_teacher_versus_baseline, "Use the simple method, or give the teacher more or cleaner rows."),
        (_winner_versus_baseline, "Compare what both cost: the simple method may be enough."),
        (_service, "Label a few hundred rows by hand to know how often it is right."),
        (_teacher_versus_probe, "Try a lower learning_rate, or finetune: {method: frozen}."),
        (_failures, "Repair what failed and run again: finished steps are kept."),
        (_unmeasured, "Nothing failed: their steps, further down, have the reasons."),
        (_stages_without_gain, "Leave that stage out, or give a training more epochs."),
        (_missed_speedups, "Measure on an idle machine again, or lower the goal."),
        (_unstable_timings, "Time again on an idle machine: compress run RECIPE --from measure."),
        (_miscalibration, "Set thresholds on rows of your own, not on its probabilities as they are."),
        (_data, "Look at these rows; task.max_length and task.long decide what is cut."),
    ):
        yield from (Remark(text, todo) for text in found(report))


def _cascades(report: Report) -> Iterator[str]:
    """What each of the winners that is a cascade is made of."""
    winners = {verdict.winner for verdict in report.verdicts}
    yield from (f"{facts.text(key)}." for key, facts in report.cascades.items() if key in winners)


def _service(report: Report) -> Iterator[str]:
    """What scores mean where the labels are a service's answers, and what the winners cost beside it."""
    service = report.service
    if service is None:
        return
    if service.tested:
        itself = service.self_agreement
        ceiling = "" if itself is None else f"; two of its own answers to one text agree in {fmt.percent(itself)}"
        yield f"The labels of test are answers of {service.model}: scores are agreement with it{ceiling}."
    else:
        yield f"The labels of test are not the held-back answers of {service.model}: scores are not agreement with it."
    for verdict in report.verdicts:
        cost = cost_of_texts(report, verdict.target, report.result(verdict.winner, verdict.target))
        if cost is not None and service.cost_of_million is not None:
            yield (
                f"A million texts cost {fmt.money(service.cost_of_million)} with {service.model} and {fmt.money(cost)}"
                f" with the winner on {verdict.target}, at {fmt.money(report.target(verdict.target).price)} an hour."
            )


def _teacher_versus_baseline(report: Report) -> Iterator[str]:
    title = next((title for title in report.titles if quality_on_test(report, report.teacher, title)), None)
    teacher, baseline = quality_on_test(report, report.teacher, title) if title else None, report.floor
    if title is None or teacher is None or baseline is None or teacher_beats_baseline(report, title):
        return
    versus = baseline.versus_teacher
    worse = versus is not None and versus.value > 0 and versus.p_value < SIGNIFICANCE
    than = f"{'significantly worse' if worse else 'not significantly better'} than {report.floor_name}"
    p_value = f", p {fmt.p_value(versus.p_value)}" if versus else ""
    yield f"The teacher is {than} ({_scores(teacher, baseline)}{p_value}): retaining its score is no success."


def _teacher_versus_probe(report: Report) -> Iterator[str]:
    gain = gain_over_probe(report)
    if gain is None or (gain.is_significant and gain.value > 0):
        return
    if gain.is_significant:
        yield (
            f"The teacher is significantly worse than {report.probe_name}, which it was fine-tuned from"
            f" (p {fmt.p_value(gain.p_value)}): fine-tuning lost what the encoder knew; a lower learning_rate or"
            " a longer warmup may keep it."
        )
        return
    test = next((test for title in report.titles if (test := quality_on_test(report, report.teacher, title))), None)
    scores = f"{_scores(test, report.probe)}, " if test and report.probe else ""
    took = f", in {fmt.seconds(gain.seconds)}" if gain.seconds else ""
    is_linear = "linear probe" in report.probe_name
    hint = "; `finetune: {method: frozen}` fits the last layer alone" if is_linear else ""
    yield (
        f"Fine-tuning gained nothing that test can show over {report.probe_name}, from which it started"
        f" ({scores}p {fmt.p_value(gain.p_value)}){took}{hint}."
    )


def _winner_versus_baseline(report: Report) -> Iterator[str]:
    if report.floor is None:
        reason = report.floor_reason or "it was not trained"
        yield f"There is no {fmt.drop_article(report.floor_name)} to compare with: {reason}."
        return
    for verdict in report.verdicts:
        test = quality_on_test(report, verdict.winner, verdict.target)
        if test is not None and not is_clearly_better(test, report.floor):
            than = f"the winner is not clearly better than {report.floor_name}"
            yield f"On {verdict.target} {than} ({_scores(test, report.floor)})."


def _undecided(report: Report) -> Iterator[str]:
    """Targets whose winner the select rows leave undecided, and those where nothing won and some row is undecided."""
    for verdict in report.verdicts:
        passed = report.with_outcome("passed", verdict.target)
        if report.is_undecided(verdict):
            what = f"the winner is undecided, {verdict.winner} is {verdict.why}"
        elif verdict.winner is None and not passed and report.with_outcome("undecided", verdict.target):
            what = f"the gate is undecided: {verdict.why}"
        else:
            continue
        yield f"On {verdict.target} {what}. {MORE_ROWS}"


def _few_select_rows(report: Report) -> Iterator[str]:
    """Winners that passed on so few rows that these could not have shown a loss of what is allowed."""
    for verdict in report.verdicts:
        result = report.result(verdict.winner, verdict.target)
        if not (result and result.select and result.gate and result.gate.outcome == "passed"):
            continue
        rows, allowed = result.select.rows, result.gate.allowed
        if result.select.larger_is_better and 0 < allowed * rows < RULE_OF_THREE:
            possible = fmt.points(round(RULE_OF_THREE / rows, 3))
            yield (
                f"On {verdict.target} the winner passed the gate on {pluralize(rows, 'select row')}, too few to show a"
                f" loss of {fmt.points(allowed)}: {possible} can go unseen (95 %). At least"
                f" {RULE_OF_THREE / allowed:,.0f} rows can show it: {MORE_ROWS}"
            )


def _scores(quality: Quality, baseline: Quality) -> str:
    """`accuracy 91.5 against 91.3`."""
    shown = [fmt.score(each.primary.value, quality.larger_is_better) for each in (quality, baseline)]
    return f"{fmt.metric(quality.metric)} {' against '.join(shown)}"


def _stages_without_gain(report: Report) -> Iterator[str]:
    for target in report.targets:
        if target.present:
            yield from _stages_without_gain_on(report, target.title)


def _stages_without_gain_on(report: Report, title: str) -> Iterator[str]:
    """Stages that are not faster, or with which a passing row missed the gate."""
    passing = {report.teacher, *(row.key for row in report.with_outcome("passed", title))}
    stages = (stage for row, _ in report.rows_at(title) for stage in speedup_stages(report, row.key, title))
    missed: dict[tuple[str, str], list[str]] = {}
    unsure: dict[str, str] = {}
    for stage in {(stage.before.key, stage.after.key): stage for stage in stages}.values():
        before, after = stage.before.key, stage.after.key
        result = report.result(after, title)
        step = STEPS.get(stage.name)
        if _saves_time(stage) and stage.speedup is not None and stage.speedup.low <= 1.0:
            factor = f"{fmt.ratio(stage.speedup.value)} as fast as {before} ({fmt.span(stage.speedup, fmt.ratio)})"
            if stage.speedup.value > 1.0:
                unsure[after] = f"{stage.name} may have brought no speedup on {title}: {after} is {factor}."
            else:
                yield f"{stage.name} brought no speedup on {title}: {after} is {factor}."
        elif result and result.select and result.gate and result.gate.outcome == "missed" and before in passing:
            hint = f"; {step.hint}" if step and step.hint and not report.data.rows.get(UNLABELLED) else ""
            missed.setdefault((stage.name, "; ".join(result.gate.reasons) + hint), []).append(after)
    if len(unsure) > 1:
        yield f"On {title} these may not be faster than what they were made from: {', '.join(unsure)}."
    else:
        yield from unsure.values()
    for (name, reasons), keys in missed.items():
        yield f"{name} missed the gate on {title}: {', '.join(keys)} {reasons}."


def _saves_time(stage: Stage) -> bool:
    """Whether a stage is there to save time, and not bytes alone."""
    if step := STEPS.get(stage.name):
        return not step.removes_pieces
    variant = stage.after.variant
    runtime = RUNTIMES.get(variant.runtime)
    return runtime is None or runtime.int8_is_faster or variant.precision != "int8"


def _missed_speedups(report: Report) -> Iterator[str]:
    """Goals of speed-up that the timing of all variants does not confirm."""
    for model, structure in report.pruned.items():
        reached = structure.speedup
        if reached is None or (timed := speedup_of_cut(report, model, reached)) is None:
            continue
        before, after, factor = timed
        if factor.high < reached.goal * (1 - TOLERANCE) or factor.low > reached.goal * (1 + TOLERANCE):
            measured = f"{fmt.ratio(factor.value)} as fast as {before.key} ({fmt.span(factor, fmt.ratio)})"
            yield f"The speed-up asked for was {reached.goal:g}×: {after.key} is {measured} on {structure.target}."


def _failures(report: Report) -> Iterator[str]:
    for row in report.rows:
        if row.status == "failed":
            yield f"{row.key} failed: {(row.reason or 'no reason is recorded').removesuffix('.')}."
    for target in report.targets:
        results, verdict = report.rows_at(target.title) if target.present else [], report.verdict(target.title)
        untimed = ((row.key, str(result.latency.reason)) for row, result in results if not result.latency.timed)
        for reason, keys in group_by_reason(untimed).items():
            if not (verdict and not verdict.winner and reason in verdict.why):  # the verdict gives this reason
                yield f"{keys} {'were' if ', ' in keys else 'was'} not timed on {target.title}: {reason}."


def _unmeasured(report: Report) -> Iterator[str]:
    """Variants that were not worth scoring and timing: one with its reason, several by their names."""
    rows = [row for row in report.rows if row.status == "not measured"]
    if len(rows) == 1:
        yield f"{rows[0].key} was not measured: {(rows[0].reason or 'no reason is recorded').removesuffix('.')}."
    elif rows:
        more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        yield f"{len(rows)} variants were not measured: {', '.join(row.key for row in rows[:NAMED])}{more}."


def _unstable_timings(report: Report) -> Iterator[str]:
    for title in report.titles:
        timed = [(row.key, result.latency) for row, result in report.rows_at(title) if result.latency.timed]
        if keys := [key for key, latency in timed if latency.status == "unstable"]:
            which = ", ".join(keys) if len(keys) <= NAMED else f"{len(keys)} of {len(timed)} variants"
            yield (
                f"Timings on {title} are unstable for {which}: read them as rough estimates; “Interference”"
                " lists the causes. Ratios come from the same rounds and are affected less."
            )


def _miscalibration(report: Report) -> Iterator[str]:
    """Winners whose calibration error is significantly larger than the teacher's."""
    descriptions = {
        "overconfident": "is overconfident",
        "underconfident": "is underconfident",
        "neither": "is overconfident on some inputs and underconfident on others",
    }
    for verdict in report.verdicts:
        tests = [quality_on_test(report, key, verdict.target) for key in (verdict.winner, report.teacher)]
        winner, teacher = (test.calibration if test else None for test in tests)
        if winner and teacher and winner.error.low > teacher.error.high:
            yield (
                f"On {verdict.target} the winner {descriptions[winner.lean]}: its calibration error is"
                f" {fmt.percent(winner.error.value)}, the teacher's {fmt.percent(teacher.error.value)}."
            )


def _data(report: Report) -> Iterator[str]:
    data = report.data
    if data.skipped:
        rows = "row of the data was" if data.skipped == 1 else "rows of the data were"
        yield f"{data.skipped:,} {rows} skipped because they do not fit the task."
    if data.duplicates:
        yield f"Texts of test that are also in train: {data.duplicates:,}."
    yield from label_problems(report.task.kind, report.task.metric, data.rows, data.contradictory, data.classes)
    truncated = {
        "test rows": truncated_of_test(report) or 0.0,
        "searched documents": data.truncated.get("test's documents", 0.0),
    }
    for texts, share in truncated.items():
        if share > TRUNCATED_SHARE:
            yield f"{fmt.percent(share)} of the {texts} were truncated at {describe_length_limit(report)}."
