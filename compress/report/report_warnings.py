"""What a reader should know before using a report: stages that did not pay, and what limits the figures."""

from __future__ import annotations

from collections.abc import Iterator

from compress.report.format_numbers import (
    drop_article,
    format_metric,
    format_p_value,
    format_percent,
    format_ratio,
    format_score,
)
from compress.report.report_schema import LedgerRow, Report
from compress.report.retention import SIGNIFICANCE, quality_on_test, teacher_beats_baseline
from compress.report.speedup_breakdown import Stage, speedup_stages
from compress.report.tables.machine_facts import describe_length_limit
from compress.report.tables.speed_tables import group_by_reason

TRUNCATED = 0.05
"""Share of cut rows that is worth a remark."""


def report_warnings(report: Report) -> tuple[str, ...]:
    """All remarks, the weightier first; expects gates and verdicts."""
    return (
        *_teacher_against_floor(report),
        *_against_floor(report),
        *(text for title in report.titles for text in _unpaid(report, title)),
        *_missing(report),
        *_unstable(report),
        *_trusted(report),
        *_data(report),
    )


def _teacher_against_floor(report: Report) -> Iterator[str]:
    """Students of a teacher that learned no more than the floor knows have succeeded in nothing."""
    title = next((title for title in report.titles if quality_on_test(report, report.teacher, title)), None)
    teacher, floor = quality_on_test(report, report.teacher, title) if title else None, report.floor
    if title is None or teacher is None or floor is None or teacher_beats_baseline(report, title):
        return
    larger, versus = teacher.larger_is_better, floor.versus_teacher
    shown = f"{format_score(teacher.primary.value, larger)} against {format_score(floor.primary.value, larger)}"
    chance = f", p {format_p_value(versus.p_value)}" if versus else ""
    worse = versus is not None and versus.value > 0 and versus.p_value < SIGNIFICANCE
    than = "significantly worse" if worse else "not significantly better"
    yield (
        f"The teacher is {than} than {report.floor_name} ({format_metric(teacher.metric)} {shown}{chance}):"
        " what is kept of its score is no success."
    )


def _against_floor(report: Report) -> Iterator[str]:
    """A winner that something simple may match is worth less than it looks."""
    if report.floor is None:
        reason = report.floor_reason or "it was not trained"
        yield f"There is no {drop_article(report.floor_name)} to compare with: {reason}."
        return
    floor = report.floor.primary
    for verdict in report.verdicts:
        row = report.row(verdict.winner) if verdict.winner else None
        test = row.targets[verdict.target].test if row else None
        if test is None:
            continue
        larger = test.larger_is_better
        clear = test.primary.low > floor.high if larger else test.primary.high < floor.low
        if not clear:
            shown = f"{format_score(test.primary.value, larger)} against {format_score(floor.value, larger)}"
            told = f"{report.floor_name} ({format_metric(test.metric)} {shown})"
            yield f"On {verdict.target} the winner is not clearly better than {told}."


def _unpaid(report: Report, title: str) -> Iterator[str]:
    """Stages that brought no speed at a target, or cost what the gate does not allow."""
    if not next(target.present for target in report.targets if target.title == title):
        return  # its verdict says so, and nothing there was timed or scored
    for link in _all_links(report, title):
        before, after = link.before, link.after
        place = after.targets.get(title)
        if link.speedup is not None and link.speedup.low <= 1.0:
            span = f"{format_ratio(link.speedup.low)} to {format_ratio(link.speedup.high)}"
            paid = "did not pay" if link.speedup.value <= 1.0 else "may not have paid"
            yield (
                f"{link.stage} {paid} on {title}: {after.key} is {format_ratio(link.speedup.value)} as fast as"
                f" {before.key} ({span})."
            )
        elif place and place.select and place.gate and not place.gate.passed and _stood(report, before, title):
            yield f"{link.stage} did not pay on {title}: {after.key} {'; '.join(place.gate.reasons)}."


def _all_links(report: Report, title: str) -> list[Stage]:
    """The links that lead to every row there, each once."""
    links = (link for row in report.rows if title in row.targets for link in speedup_stages(report, row.key, title))
    return list({(link.before.key, link.after.key): link for link in links}.values())


def _stood(report: Report, row: LedgerRow, title: str) -> bool:
    """Whether a row passed the gate, or is the reference that sets it."""
    place = row.targets.get(title)
    return row.key == report.teacher or (place is not None and place.gate is not None and place.gate.passed)


def _missing(report: Report) -> Iterator[str]:
    present = {target.title for target in report.targets if target.present}
    for row in report.rows:
        if row.status != "ok":
            yield f"{row.key} {'failed' if row.status == 'failed' else 'was not measured'}: {row.reason}."
    for title in report.titles:
        there = [(row.key, row.targets[title].latency) for row in report.rows if title in row.targets]
        for key, latency in there:
            if latency.status == "failed":
                yield f"Timing {key} on {title} failed: {latency.reason}."
        untimed = [(key, str(latency.reason)) for key, latency in there if latency.status == "not measured"]
        for reason, keys in group_by_reason(untimed).items() if title in present else ():
            if not _told_of(report, title, reason):
                yield f"{', '.join(keys)} {'was' if len(keys) == 1 else 'were'} not timed on {title}: {reason}."


def _told_of(report: Report, title: str, reason: str) -> bool:
    """Whether the verdict there, which stands above the remarks, gives this reason already."""
    return any(verdict.target == title and not verdict.winner and reason in verdict.why for verdict in report.verdicts)


def _unstable(report: Report) -> Iterator[str]:
    for title in report.titles:
        keys = [
            row.key for row in report.rows if title in row.targets and row.targets[title].latency.status == "unstable"
        ]
        if keys:
            yield (
                f"Timings on {title} are unstable for {', '.join(keys)}, so they are no more than hints: “How quiet the"
                " machine was” tells what was seen. Ratios come from the same rounds and suffer less."
            )


def _trusted(report: Report) -> Iterator[str]:
    """A winner whose confidence means less than the teacher's, by more than chance."""
    for verdict in report.verdicts:
        rows = report.row(verdict.winner or ""), report.row(report.teacher)
        tests = [row.targets[verdict.target].test if row and verdict.target in row.targets else None for row in rows]
        ours, theirs = (test.calibration if test else None for test in tests)
        if ours and theirs and ours.error.low > theirs.error.high:
            says = {
                "too sure": "is too sure of its answers",
                "not sure enough": "is not sure enough of its answers",
                "neither": "is too sure of some answers and not sure enough of others",
            }[ours.lean]
            yield (
                f"On {verdict.target} the winner {says}: its calibration error is"
                f" {format_percent(ours.error.value)}, the teacher's {format_percent(theirs.error.value)}."
            )


def _data(report: Report) -> Iterator[str]:
    if report.data.skipped:
        told = "row of the data was" if report.data.skipped == 1 else "rows of the data were"
        yield f"{report.data.skipped:,} {told} left out for not valid_rows the task."
    if report.data.duplicates:
        told = "text of test also stands" if report.data.duplicates == 1 else "texts of test also stand"
        yield f"{report.data.duplicates} {told} in train."
    shares = {place.test.truncated for row in report.rows for place in row.targets.values() if place.test}
    cut = max((share for share in shares if share is not None), default=0.0)
    if cut > TRUNCATED:
        yield f"{format_percent(cut)} of the test rows were cut at {describe_length_limit(report)}."
    of_documents = report.data.truncated.get("test's documents", 0.0)
    if of_documents > TRUNCATED:
        yield (
            f"{format_percent(of_documents)} of the documents that are searched on test were cut at"
            f" {describe_length_limit(report)}."
        )
