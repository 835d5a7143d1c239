"""Scores a model's predictions: metrics with intervals, differences to the teacher, and weak spots.

Weak spots are classes, subgroups of rows (by length, and by the values of a column), and the rows on which a model and
its teacher differ most: where to look when a score is lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import UsageError
from compress.measure.quality.bootstrap_scorer import BootstrapScorer, Predictions, to_score
from compress.measure.quality.calibration import calibrate
from compress.measure.quality.quality_result import (
    ClassPair,
    ClassScore,
    Confusion,
    Disagreement,
    Perturbed,
    Quality,
    SliceScore,
)
from compress.measure.quality.significance import sign_test
from compress.model_folder.model_info import TaskInfo
from compress.tasks.kind import Kind
from compress.tasks.parsing.columns import EMPTY_VALUE

MATRIX_CLASSES = 20
"""Most classes, `no class` and O included, whose confusion matrix is kept as a whole."""
MOST_PAIRS = 50
"""Pairs of classes that are kept where there are more."""
ROWS_AT_ONCE = 256
"""Rows of which single hits are counted together: their table has a line and a column for each."""


def score_model(
    kind: Kind,
    task: TaskInfo,
    answers: Predictions,
    gold: NDArray[Any],
    *,
    role: str = "test",
    teacher_answers: Predictions | None = None,
    unquantized_answers: Predictions | None = None,
    truncated: float | None = None,
    batch: int | None = None,
    lengths: NDArray[Any] | None = None,
    slices: Mapping[str, Sequence[str]] | None = None,
    perturbed: Mapping[str, Predictions] | None = None,
    resampling: int = 1000,
    seed: int = 0,
    scorer: BootstrapScorer | None = None,
) -> Quality:
    """Score ``answers`` with intervals, and against those of the teacher and the unquantized model where given.

    On test also: calibration, the confusion matrix, scores by ``lengths`` (pieces of each row) and by the columns of
    ``slices`` (a value a row), the loss on ``perturbed`` texts (predictions by perturbation), and the rows that differ
    most from the teacher.
    All intervals use the same resamples, so differences are paired. A ``scorer``, created once for a task, caches
    scores between calls and replaces ``resampling`` and ``seed``; without it every call scores everything again.
    """
    scorer = scorer or BootstrapScorer(kind, task, resampling, seed)
    scores, teacher, parent = scorer.intervals(answers, gold), teacher_answers, unquantized_answers
    same = None if teacher is None else kind.same_decision(answers, teacher)
    quality = Quality(
        role=role,
        rows=len(gold),
        metric=task.metric,
        larger_is_better=scorer.metric.larger_is_better,
        primary=to_score(scores[task.metric]),
        scores={name: to_score(interval) for name, interval in scores.items()},
        per_class=class_scores(kind, task, answers, gold),
        versus_teacher=None if teacher is None else scorer.difference(answers, teacher, gold),
        versus_unquantized=None if parent is None else scorer.difference(answers, parent, gold),
        agreement_with_teacher=None if same is None else float(same.mean()),
        truncated=truncated,
        batch=batch,
    )
    if role != "test":
        return quality
    return quality.model_copy(
        update={
            "calibration": calibrate(scorer, answers, gold),
            "confusion": class_confusion(kind, task, answers, gold),
            "by_length": () if lengths is None else score_groups(scorer, by_length(lengths), answers, gold, teacher),
            "slices": {
                name: score_groups(scorer, by_column(values), answers, gold, teacher)
                for name, values in (slices or {}).items()
            },
            "robustness": tuple(
                _perturbed(scorer, name, given, answers, gold) for name, given in (perturbed or {}).items()
            ),
            "disagreements": () if teacher is None else largest_disagreements(kind, task, answers, teacher, gold),
            **(
                {} if teacher is None else {"per_class": with_recall_tests(quality, kind, task, answers, teacher, gold)}
            ),
        }
    )


def _perturbed(
    scorer: BootstrapScorer, name: str, given: Predictions, answers: Predictions, gold: NDArray[Any]
) -> Perturbed:
    primary, change = to_score(scorer.primary(given, gold)), scorer.difference(given, answers, gold)
    return Perturbed(name=name, primary=primary, change=change)


def class_scores(kind: Kind, task: TaskInfo, answers: Predictions, gold: NDArray[Any]) -> dict[str, ClassScore]:
    """Return recall, precision and F1 of each class that has rows."""
    counts = kind.class_counts(answers, gold, task)
    if counts is None:
        return {}
    names = kind.class_names(task.labels)
    lines = zip(names, counts.hits.tolist(), counts.predicted.tolist(), counts.true.tolist(), strict=True)
    return {
        label: ClassScore(
            rows=true,
            recall=hits / true,
            precision=hits / predicted if predicted else None,
            f1=2 * hits / (predicted + true),
        )
        for label, hits, predicted, true in lines
        if true
    }


def class_confusion(kind: Kind, task: TaskInfo, answers: Predictions, gold: NDArray[Any]) -> Confusion | None:
    """Return the confusion matrix, or of many classes the most frequent errors."""
    confusion = kind.confusion(answers, gold, task)
    if confusion is None:
        return None
    names, counts, unit = confusion.names, confusion.counts, confusion.unit
    if len(names) <= MATRIX_CLASSES:
        return Confusion(unit=unit, names=names, counts=tuple(map(tuple, counts.tolist())))
    errors = np.where(np.eye(len(names), dtype=np.bool_), 0, counts).ravel()
    order = np.argsort(-errors, kind="stable")[:MOST_PAIRS]
    pairs = (
        ClassPair(true=names[index // len(names)], predicted=names[index % len(names)], count=int(errors[index]))
        for index in order.tolist()
        if errors[index]
    )
    return Confusion(unit=unit, pairs=tuple(pairs))


def with_recall_tests(
    quality: Quality, kind: Kind, task: TaskInfo, answers: Predictions, teacher: Predictions, gold: NDArray[Any]
) -> dict[str, ClassScore]:
    """Return the class scores with the paired test of each class's recall against the teacher's."""
    if not quality.per_class:
        return {}
    classes = len(kind.class_names(task.labels))
    gained, lost = np.zeros(classes, dtype=np.int64), np.zeros(classes, dtype=np.int64)
    for start in range(0, len(gold), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        each = np.eye(len(gold[part]))  # a draw of one row each: the hits of single rows
        ours, theirs = (kind.weighted_class_counts(given[part], gold[part], task, each) for given in (answers, teacher))
        assert ours is not None  # the kind has class scores
        assert theirs is not None
        gained += (ours.hits > theirs.hits).sum(axis=0)
        lost += (ours.hits < theirs.hits).sum(axis=0)
    return {
        label: quality.per_class[label].model_copy(update={"recall_p_value": sign_test(int(more), int(fewer))})
        for label, more, fewer in zip(kind.class_names(task.labels), gained, lost, strict=True)
        if label in quality.per_class
    }


MIN_ROWS = 30
"""Rows from which a score is given: with fewer, the interval is so wide and so inaccurate that the value misleads."""
MAX_VALUES = 20
"""Values of a column with a group of their own; rarer ones share a group. Columns with more numbers become ranges."""


@dataclass(frozen=True)
class Subgroup:
    """A named subset of the rows."""

    name: str
    rows: NDArray[np.intp]


def by_length(lengths: NDArray[Any]) -> list[Subgroup]:
    """Return the quartiles of the rows' lengths in pieces, shortest first; rows of equal length stay together."""
    return _quartiles(np.asarray(lengths, dtype=np.float64), "pieces")


def by_column(values: Sequence[str]) -> list[Subgroup]:
    """Return the rows of each value, most frequent first; quartiles where there are many values and all are numbers."""
    distinct, group_of, counts = np.unique(np.asarray(values, dtype=np.str_), return_inverse=True, return_counts=True)
    if len(distinct) > MAX_VALUES:
        numbers = _numbers(distinct)
        if numbers is not None:
            return _quartiles(numbers[group_of])
    order = np.argsort(-counts, kind="stable")
    groups = [Subgroup(str(distinct[index]), np.flatnonzero(group_of == index)) for index in order[:MAX_VALUES]]
    rest = order[MAX_VALUES:]
    if len(rest):
        groups.append(Subgroup(f"{len(rest):,} other values", np.flatnonzero(np.isin(group_of, rest))))
    return groups


def score_groups(
    scorer: BootstrapScorer,
    groups: Sequence[Subgroup],
    answers: Predictions,
    gold: NDArray[Any],
    teacher: Predictions | None = None,
) -> tuple[SliceScore, ...]:
    """Return the primary score on each group, and its difference to the teacher's."""
    total = sum(len(group.rows) for group in groups)
    if total != len(gold):
        raise UsageError(f"the slices have {total} rows and {len(gold)} were scored.")
    return tuple(_score_group(scorer, group, answers, gold, teacher) for group in groups)


def _score_group(
    scorer: BootstrapScorer, group: Subgroup, answers: Predictions, gold: NDArray[Any], teacher: Predictions | None
) -> SliceScore:
    rows, known = len(group.rows), gold[group.rows]
    if rows < MIN_ROWS:
        return SliceScore(name=group.name, rows=rows, reason=f"fewer than {MIN_ROWS} rows")
    if scorer.metric.needs_varied_labels and not scorer.kind.has_varied_labels(known):
        reason = f"{scorer.metric.name} is undefined where every row has the same answer"
        return SliceScore(name=group.name, rows=rows, reason=reason)
    given = answers[group.rows]
    return SliceScore(
        name=group.name,
        rows=rows,
        primary=to_score(scorer.primary(given, known)),
        versus_teacher=None if teacher is None else scorer.difference(given, teacher[group.rows], known),
    )


def _quartiles(values: NDArray[np.float64], unit: str = "") -> list[Subgroup]:
    """Return up to four ranges of about equally many rows, named by the least and the greatest value in each."""
    known = np.flatnonzero(~np.isnan(values))
    group_of = np.searchsorted(np.unique(np.quantile(values[known], (0.25, 0.5, 0.75))), values[known], side="left")
    groups = []
    for index in np.unique(group_of):
        rows = known[group_of == index]
        low, high = f"{values[rows].min():.10g}", f"{values[rows].max():.10g}"
        range_name = low if low == high else f"{low}-{high}" if unit else f"{low} to {high}"
        groups.append(Subgroup(f"{range_name} {unit}".rstrip(), rows))
    if len(known) < len(values):
        groups.append(Subgroup(EMPTY_VALUE, np.flatnonzero(np.isnan(values))))
    return groups


def _numbers(distinct: NDArray[np.str_]) -> NDArray[np.float64] | None:
    """Return the values as numbers, empty ones as nan; None where any is something else."""
    try:
        numbers = [float("nan") if value == EMPTY_VALUE else float(value) for value in distinct.tolist()]
    except ValueError:
        return None
    parsed = np.asarray(numbers)
    return parsed if np.isfinite(parsed[distinct != EMPTY_VALUE]).all() else None


MAX_ROWS = 20
MIN_DISTANCE = 0.05
"""Distance from which rows with the same decision are reported: of probabilities, or in spreads of the gold values
where there are no decisions. Smaller ones are rounding differences of another runtime or precision."""


def largest_disagreements(
    kind: Kind, task: TaskInfo, answers: Predictions, teachers: Predictions, gold: NDArray[Any], most: int = MAX_ROWS
) -> tuple[Disagreement, ...]:
    """Return up to ``most`` rows: those with different decisions first, then those beyond ``MIN_DISTANCE``.

    Both in decreasing distance, equal ones in the order of the rows.
    """
    distances = kind.distance(answers, teachers)
    if distances is None:
        return ()
    same = kind.same_decision(answers, teachers)
    flipped = np.zeros(len(distances), dtype=np.bool_) if same is None else ~same
    least = MIN_DISTANCE * kind.label_spread(gold, task)
    order = np.lexsort((-distances, ~flipped))[:most]  # stable: of equals the earlier ones
    rows = order[flipped[order] | (distances[order] > least)]
    ours, theirs = kind.describe(answers[rows], task), kind.describe(teachers[rows], task)
    return tuple(
        Disagreement(row=int(row), distance=float(distances[row]), ours=our, teachers=their, gold=right)
        for row, our, their, right in zip(rows, ours, theirs, kind.describe_gold(gold[rows], task), strict=True)
    )
