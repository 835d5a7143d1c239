"""Tables of predictions on test: retention, classes, confusions, calibration, slices, changed texts, disagreements."""

from collections.abc import Sequence

from compress import format_numbers as fmt
from compress.measure.quality.quality_result import Confusion, Difference, Quality, SliceScore
from compress.measure.result_base import Score
from compress.report.report_schema import Report
from compress.report.retention import (
    SIGNIFICANCE,
    quality_on_test,
    ratio_above_baseline,
    score_ratio,
    teacher_beats_baseline,
)
from compress.tables import Cells, Table, make_table


def format_quality(quality: Quality | None) -> str:
    """The primary score with its interval: `90.4 (88.3 to 92.3)`."""
    return _with_interval(quality.primary, quality.larger_is_better) if quality else fmt.ABSENT


def _with_interval(score: Score, larger: bool) -> str:
    return f"{fmt.score(score.value, larger)} ({fmt.interval(score, larger)})"


def format_change(change: Difference | None, larger: bool) -> str:
    """A difference, with a star if it is significant: `−0.3*`."""
    if change is None:
        return fmt.ABSENT
    return fmt.signed(change.value, larger) + ("*" if change.p_value < SIGNIFICANCE else "")


def format_above(report: Report, title: str, ratio: float | None) -> str:
    """The share retained above the baseline, if the teacher is better than it."""
    return fmt.NOT_MEANINGFUL if teacher_beats_baseline(report, title) is False else fmt.percent(ratio)


def retention_table(report: Report, title: str) -> Table:
    """The share of the teacher's score that every row retains, in total and above the baseline."""
    teacher = quality_on_test(report, report.teacher, title)
    return make_table(
        {
            **row.names,
            "score": format_quality(result.test),
            "vs teacher": format_change(result.test.versus_teacher, result.test.larger_is_better),
            "retained": fmt.percent(score_ratio(result.test, teacher)),
            "above the baseline": format_above(
                report, title, ratio_above_baseline(report, result.test, teacher, title)
            ),
        }
        for row, result in report.rows_at(title)
        if result.test and teacher and row.key != report.teacher
    )


def class_table(report: Report, title: str, key: str) -> Table:
    """Recall and precision of every class, for ``key`` and the teacher."""
    quality, teacher = (quality_on_test(report, name, title) for name in (key, report.teacher))
    if quality is None or teacher is None:
        return make_table(())
    scores = [(label, score, teacher.per_class.get(label)) for label, score in quality.per_class.items()]
    return make_table(
        (
            {
                "class": label,
                "rows": fmt.count(score.rows),
                "recall": fmt.score(score.recall),
                "teacher's recall": fmt.score(other.recall),
                "change": fmt.signed(score.recall - other.recall),
                "precision": fmt.score(score.precision),
                "teacher's precision": fmt.score(other.precision),
                "F1": fmt.score(score.f1),
                "teacher's F1": fmt.score(other.f1),
            }
            for label, score, other in scores
            if other
        ),
        names=1,
    ).without_empty()


TRUE_CLASS = "true ↓ predicted →"


def confusion_table(report: Report, title: str, key: str) -> Table:
    """Every class by what ``key`` predicted in its place, in brackets the teacher's count where it differs.

    Of many classes, the most frequent errors.
    """
    qualities = (quality_on_test(report, name, title) for name in (key, report.teacher))
    own, teacher = (quality.confusion if quality else None for quality in qualities)
    if own is None:
        return make_table(())
    if not own.counts:
        return _pair_table(own, teacher, key, report.teacher)
    others = teacher.counts if teacher and teacher.names == own.names else own.counts
    rows: list[Cells] = []
    for name, line, other in zip(own.names, own.counts, others, strict=True):
        cells = (_count_cell(*counts) for counts in zip(line, other, strict=True))
        rows.append({TRUE_CLASS: name, **dict(zip(own.names, cells, strict=True))})
    return make_table(rows, names=1)


def _count_cell(own: int, teacher: int) -> str:
    return (f"{own:,}" if own else "·") + (f" ({teacher:,})" if teacher != own else "")


def _pair_table(own: Confusion, teacher: Confusion | None, key: str, teacher_key: str) -> Table:
    known = {(pair.true, pair.predicted): pair.count for pair in (teacher.pairs if teacher else ())}
    rows = []
    for pair in own.pairs:
        cells = {"true": pair.true, "predicted": pair.predicted, key: fmt.count(pair.count)}
        if key != teacher_key:
            cells["teacher"] = fmt.count(known.get((pair.true, pair.predicted)))
        rows.append(cells)
    return make_table(rows)


def calibration_table(report: Report, title: str) -> Table:
    """Calibration error of each row, and how often its decisions equal the teacher's."""
    rows = []
    for row, result in report.rows_at(title):
        test = result.test
        calibration = test.calibration if test else None
        if test is None or (calibration is None and test.agreement_with_teacher is None):
            continue
        cells = row.names
        if calibration is not None:
            error = calibration.error
            cells |= {
                "calibration error (95 %)": f"{fmt.percent(error.value)} ({fmt.span(error, fmt.percent)})",
                "expected below": fmt.percent(calibration.by_chance),
                "tendency": calibration.lean,
            }
        rows.append(cells | {"agreement with the teacher": fmt.percent(test.agreement_with_teacher)})
    return make_table(rows, left=("tendency",)).without_empty()


def slice_table(report: Report, title: str, key: str, column: str | None) -> Table:
    """Scores of ``key`` and the teacher on parts of the rows: by length, or by the values of a column."""
    quality, teacher = (quality_on_test(report, name, title) for name in (key, report.teacher))
    teacher_parts = {part.name: part for part in _slices(teacher, column)}
    heading = "by length" if column is None else f"by {column}"
    larger = quality.larger_is_better if quality else True
    rows = []
    for part in _slices(quality, column):
        score, other, change = part.primary, teacher_parts.get(part.name), part.versus_teacher
        shown = _with_interval(score, larger) if score else None
        cells = {heading: part.name, "rows": fmt.count(part.rows), key: shown or part.reason or fmt.ABSENT}
        if key != report.teacher:
            cells |= {
                "teacher": fmt.score(other.primary.value if other and other.primary else None, larger),
                "change": format_change(change, larger),
                "95 % of the change": _format_ends(change, larger) if change else fmt.ABSENT,
            }
        rows.append(cells)
    return make_table(rows, names=1)


def _format_ends(change: Difference, larger: bool) -> str:
    """Both ends of a difference's interval, the lower change of the score first: `−0.6 to +0.1`."""
    ends = (change.low, change.high) if larger else (change.high, change.low)
    return " to ".join(fmt.signed(end, larger) for end in ends)


def _slices(quality: Quality | None, column: str | None) -> Sequence[SliceScore]:
    if quality is None:
        return ()
    return quality.by_length if column is None else quality.slices.get(column, ())


def robustness_table(report: Report, title: str) -> Table:
    """Every row's score on changed texts, and the change against its own score on the original texts."""
    rows = []
    for row, result in report.rows_at(title):
        if result.test and result.test.robustness:
            larger = result.test.larger_is_better
            cells = {"original": fmt.score(result.test.primary.value, larger)}
            for change in result.test.robustness:
                score = fmt.score(change.primary.value, larger)
                cells[change.name] = f"{score} ({format_change(change.change, larger)})"
            rows.append({**row.names, **cells})
    return make_table(rows)


def disagreement_table(report: Report, title: str, key: str) -> Table:
    """The test rows on which ``key`` and the teacher differ most, by number; reports never hold their text."""
    test = quality_on_test(report, key, title)
    rows = [
        {
            "row of test": f"{one.row:,}",
            "label": one.gold,
            "teacher": one.teachers,
            key: one.ours,
            "distance": f"{one.distance:.3g}",
        }
        for one in (test.disagreements if test else ())
    ]
    if not rows and test and key != report.teacher and test.by_length:  # they were compared, and none differs
        rows = [{"row of test": "none", **dict.fromkeys(("label", "teacher", key, "distance"), fmt.ABSENT)}]
    return make_table(rows, names=0, sentences=("label", "teacher", key))
