"""What was found out about answers beyond the score, as rows of words, all on test."""

from __future__ import annotations

from collections.abc import Sequence

from compress.measure.quality.quality_result import ClassScore, Difference, Quality, SliceScore
from compress.report.format_numbers import (
    ABSENT,
    NOT_MEANINGFUL,
    format_count,
    format_interval,
    format_percent,
    format_score,
    format_signed,
)
from compress.report.report_schema import Report
from compress.report.retention import (
    SIGNIFICANCE,
    quality_on_test,
    ratio_above_baseline,
    score_ratio,
    teacher_beats_baseline,
)
from compress.report.tables.speed_tables import places
from compress.report.tables.table_type import Cells, Table


def scored(quality: Quality | None) -> str:
    """The primary score with its interval: `90.4 (88.3 to 92.3)`."""
    if quality is None:
        return ABSENT
    larger = quality.larger_is_better
    return f"{format_score(quality.primary.value, larger)} ({format_interval(quality.primary, larger)})"


def changed(found: Difference | None, larger: bool) -> str:
    """A difference: `−0.3`, marked where it is larger than chance explains at 5 %."""
    if found is None:
        return ABSENT
    return format_signed(found.value, larger) + ("*" if found.p_value < SIGNIFICANCE else "")


def retention(report: Report, title: str) -> Table:
    """What every row keeps of the teacher's score, and of the part of it that the floor does not reach."""
    columns = ("model", "variant", "score", "vs teacher", "score kept", "kept above the floor")
    teacher = quality_on_test(report, report.teacher, title)
    rows = tuple(
        {
            "model": row.model,
            "variant": row.variant.name,
            "score": scored(place.test),
            "vs teacher": changed(place.test.versus_teacher, place.test.larger_is_better),
            "score kept": format_percent(score_ratio(place.test, teacher)),
            "kept above the floor": above_floor(report, place.test, title),
        }
        for row, place in places(report, title)
        if place.test and teacher and row.key != report.teacher
    )
    return Table(columns, rows, frozenset(columns[2:]))


def above_floor(report: Report, ours: Quality | None, title: str) -> str:
    """What is kept of the teacher's score above the floor: `96.2 %`, or that it means nothing."""
    if teacher_beats_baseline(report, title) is False:
        return NOT_MEANINGFUL
    return format_percent(ratio_above_baseline(report, ours, quality_on_test(report, report.teacher, title), title))


def classes(report: Report, title: str, key: str) -> Table:
    """How well every class is found, by the teacher and by ``key``."""
    ours, teachers = (quality_on_test(report, name, title) for name in (key, report.teacher))
    if ours is None or teachers is None:
        return Table((), ())
    rows = tuple(
        _class_row(label, entry, teachers.per_class[label])
        for label, entry in ours.per_class.items()
        if label in teachers.per_class
    )
    precise = any(entry.precision is not None or entry.f1 is not None for entry in ours.per_class.values())
    more = ("precision", "teacher's precision", "F1", "teacher's F1") if precise else ()
    columns = ("class", "how many", "recall", "teacher's recall", "change", *more)
    return Table(columns, rows, frozenset(columns[1:]))


def _class_row(label: str, ours: ClassScore, teachers: ClassScore) -> Cells:
    return {
        "class": label,
        "how many": format_count(ours.rows),
        "recall": format_score(ours.recall),
        "teacher's recall": format_score(teachers.recall),
        "change": format_signed(ours.recall - teachers.recall),
        "precision": format_score(ours.precision),
        "teacher's precision": format_score(teachers.precision),
        "F1": format_score(ours.f1),
        "teacher's F1": format_score(teachers.f1),
    }


def trust(report: Report, title: str) -> Table:
    """Whether each row is right as often as it says, and how often it decides as the teacher does."""
    columns = ("model", "variant", "calibration error (95 %)", "by chance below", "leans", "agrees with the teacher")
    rows = []
    for row, place in places(report, title):
        test = place.test
        found = test.calibration if test else None
        if test is None or (found is None and test.agreement_with_teacher is None):
            continue
        rows.append(
            {
                "model": row.model,
                "variant": row.variant.name,
                "calibration error (95 %)": f"{format_percent(found.error.value)}"
                f" ({format_percent(found.error.low)} to"
                f" {format_percent(found.error.high)})"
                if found
                else ABSENT,
                "by chance below": format_percent(found.by_chance if found else None),
                "leans": found.lean if found else ABSENT,
                "agrees with the teacher": format_percent(test.agreement_with_teacher),
            }
        )
    return Table(columns, tuple(rows), frozenset(columns[2:]) - {"leans"}).without_empty()


def slices(report: Report, title: str, key: str, column: str | None) -> Table:
    """The score on parts of the rows, of the teacher and of ``key``: by length, or by a column's values."""
    ours, teachers = (quality_on_test(report, name, title) for name in (key, report.teacher))
    given, theirs = _parts(ours, column), {part.name: part for part in _parts(teachers, column)}
    name = "by length" if column is None else f"by {column}"
    columns = (name, "rows", key, *(("teacher", "change", "95 % of the change") if key != report.teacher else ()))
    larger = ours.larger_is_better if ours else True
    rows = tuple({name: part.name, **_slice_cells(part, theirs.get(part.name), key, larger)} for part in given)
    return Table(columns, rows, frozenset(columns[1:]))


def _parts(quality: Quality | None, column: str | None) -> Sequence[SliceScore]:
    if quality is None:
        return ()
    return quality.by_length if column is None else quality.slices.get(column, ())


def _slice_cells(part: SliceScore, theirs: SliceScore | None, key: str, larger: bool) -> Cells:
    versus = part.versus_teacher
    return {
        "rows": format_count(part.rows),
        "teacher": format_score(theirs.primary.value if theirs and theirs.primary else None, larger),
        key: f"{format_score(part.primary.value, larger)} ({format_interval(part.primary, larger)})"
        if part.primary
        else part.reason or ABSENT,
        "change": changed(versus, larger),
        "95 % of the change": f"{format_signed(versus.low, larger)} to {format_signed(versus.high, larger)}"
        if versus
        else ABSENT,
    }


def robustness(report: Report, title: str) -> Table:
    """Every row's score on changed texts, and the change against its own answers to the texts as they are."""
    found = [(row, place.test) for row, place in places(report, title) if place.test and place.test.robustness]
    names = tuple(dict.fromkeys(each.name for _, test in found for each in test.robustness))
    columns = ("model", "variant", "as they are", *names)
    rows = tuple(
        {
            "model": row.model,
            "variant": row.variant.name,
            "as they are": format_score(test.primary.value, test.larger_is_better),
            **dict.fromkeys(names, ABSENT),
            **{
                each.name: f"{format_score(each.primary.value, test.larger_is_better)}"
                f" ({changed(each.change, test.larger_is_better)})"
                for each in test.robustness
            },
        }
        for row, test in found
    )
    return Table(columns, rows, frozenset(columns[2:]))


def disagreements(report: Report, title: str, key: str) -> Table:
    """The test rows on which ``key`` and the teacher are furthest apart, by number; no report holds their text."""
    test = quality_on_test(report, key, title)
    columns = ("row of test", "right answer", "the teacher's", key, "apart by")
    rows = tuple(
        {
            "row of test": f"{each.row:,}",
            "right answer": each.gold,
            "the teacher's": each.teachers,
            key: each.ours,
            "apart by": f"{each.distance:.3g}",
        }
        for each in (test.disagreements if test else ())
    )
    if not rows and test and key != report.teacher and test.by_length:  # it was looked at, and none is apart
        rows = ({**dict.fromkeys(columns, ABSENT), "row of test": "none"},)
    return Table(columns, rows, frozenset({"row of test", "apart by"}), texts=frozenset(columns[1:4]))
