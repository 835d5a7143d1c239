"""How good a model's answers are, how sure that is, and how they compare with the teacher's on the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError, UsageError, nearest
from compress.folder import TaskInfo
from compress.measure.facts import Facts, Score
from compress.measure.significance import Interval, mcnemar, paired_p_value, percentile_interval, resamples
from compress.runtime.predictor import Predictor
from compress.tasks.kind import Arrays, Kind

Answers = NDArray[Any]
"""One answer a row, as ``Kind.answers`` gives them."""


class Difference(Facts):
    """A model's primary score minus another's on the same rows, turned so that below zero is always a loss."""

    value: float
    low: float
    high: float
    p_value: float
    """How likely so large a difference is between equally good models."""
    test: Literal["mcnemar", "paired bootstrap"]


class ClassScore(Facts):
    """How much of one class was found."""

    rows: int
    recall: float


class Quality(Facts):
    """The scores of one model on one role."""

    role: str
    rows: int
    metric: str
    larger_is_better: bool
    primary: Score
    scores: Mapping[str, Score]
    per_class: Mapping[str, ClassScore] = {}
    """Classes without a row in this role are left out."""
    versus_teacher: Difference | None = None
    """None for the teacher's own reference variant."""
    versus_unquantized: Difference | None = None
    """For quantized variants: against the same model before quantization."""
    agreement_with_teacher: float | None = None
    """Share of rows with the same decision; None where the task has no decisions."""
    truncated: float | None = None
    """Share of rows that were cut at the task's max_length."""
    batch: int | None = None
    """Rows that shared a batch when scored; told where the answers depend on it (dynamic INT8)."""


class EncodedRows(Protocol):
    """As much of ``data.batches.Encoded`` as predicting needs."""

    @property
    def lengths(self) -> NDArray[Any]:
        """Pieces of each example."""
        ...

    def batch(self, indices: NDArray[Any]) -> Arrays:
        """The padded batch of these examples."""
        ...


def predict_role(predictor: Predictor, encoded: EncodedRows, batch: int) -> Arrays:
    """The outputs of all examples in their own order, run in batches of ``batch`` of similar length.

    Where a batch is asked for because the answers depend on it, the batches are still the same for every model: they
    follow from the lengths alone.
    """
    order = np.argsort(encoded.lengths, kind="stable")
    outputs: dict[str, NDArray[Any]] = {}
    for start in range(0, len(order), batch):
        indices = order[start : start + batch]
        for name, values in predictor.predict(encoded.batch(indices)).items():
            if name not in outputs:
                outputs[name] = np.empty((len(order), *values.shape[1:]), values.dtype)
            outputs[name][indices] = values
    return outputs


def assess(
    kind: Kind,
    task: TaskInfo,
    answers: Answers,
    gold: NDArray[Any],
    *,
    role: str = "test",
    teacher_answers: Answers | None = None,
    unquantized_answers: Answers | None = None,
    truncated: float | None = None,
    batch: int | None = None,
    resampling: int = 1000,
    seed: int = 0,
) -> Quality:
    """Score ``answers`` with intervals, and against the answers of the teacher and the unquantized model where given.

    All intervals come from the same ``resampling`` draws of rows, so differences are paired.
    """
    larger = _larger_is_better(kind, task.metric)
    scores = _intervals(kind, task, answers, gold, resampling, seed)

    def against(others: Answers | None) -> Difference | None:
        if others is None:
            return None
        theirs = _intervals(kind, task, others, gold, resampling, seed)[task.metric]
        return _difference(kind, scores[task.metric], theirs, (answers, others), gold, larger)

    decided = decisions(kind, task, answers, gold)
    taught = None if teacher_answers is None else decisions(kind, task, teacher_answers, gold)

    return Quality(
        role=role,
        rows=len(gold),
        metric=task.metric,
        larger_is_better=larger,
        primary=_score(scores[task.metric]),
        scores={name: _score(interval) for name, interval in scores.items()},
        per_class=class_scores(task, decided, gold),
        versus_teacher=against(teacher_answers),
        versus_unquantized=against(unquantized_answers),
        agreement_with_teacher=agreement(decided, taught),
        truncated=truncated,
        batch=batch,
    )


def decisions(kind: Kind, task: TaskInfo, answers: Answers, gold: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Which classes each row was given, as (rows, classes); None where the kind makes no decisions.

    ``gold`` tells the form alone: one class a row (1-D) or a column for each (2-D). The kind itself is asked, class by
    class, whether that answer would be right: so its thresholds hold here too.
    """
    rows, columns = len(answers), []
    for index in range(len(task.labels)):
        if gold.ndim == 1:
            chosen = kind.correct(answers, np.full(rows, index, gold.dtype))
        else:
            chosen = kind.correct(answers[:, index : index + 1], np.ones((rows, 1), gold.dtype))
        if chosen is None:
            return None
        columns.append(chosen)
    return np.stack(columns, axis=1) if columns else None


def class_scores(task: TaskInfo, decided: NDArray[np.bool_] | None, gold: NDArray[Any]) -> dict[str, ClassScore]:
    """The recall of each class that has rows."""
    if decided is None:
        return {}
    found = {}
    for index, label in enumerate(task.labels):
        members = gold == index if gold.ndim == 1 else gold[:, index] > 0
        if members.any():
            found[label] = ClassScore(rows=int(members.sum()), recall=float(decided[members, index].mean()))
    return found


def agreement(decided: NDArray[np.bool_] | None, others: NDArray[np.bool_] | None) -> float | None:
    """The share of rows on which two models decide the same."""
    if decided is None or others is None:
        return None
    return float((decided == others).all(axis=1).mean())


def _larger_is_better(kind: Kind, metric: str) -> bool:
    for known in kind.metrics:
        if known.name == metric:
            return known.larger_is_better
    names = [known.name for known in kind.metrics]
    raise UsageError(f"{kind.name} has no metric called '{metric}'{nearest(metric, names)}")


def _intervals(
    kind: Kind, task: TaskInfo, answers: Answers, gold: NDArray[Any], resampling: int, seed: int
) -> dict[str, Interval]:
    """Every metric with the same draws behind its interval."""
    _check(answers, gold)
    values = kind.score(answers, gold, task)
    drawn: dict[str, list[float]] = {name: [] for name in values}
    for rows in resamples(len(gold), resampling, seed):
        for name, value in kind.score(answers[rows], gold[rows], task).items():
            drawn[name].append(value)
    return {name: percentile_interval(values[name], np.asarray(drawn[name])) for name in values}


def _check(answers: Answers, gold: NDArray[Any]) -> None:
    if len(answers) != len(gold):
        raise ModelError(f"{len(answers)} answers were given for {len(gold)} rows.")
    if len(gold) == 0:
        raise ModelError("there are no rows to score.")
    if np.issubdtype(answers.dtype, np.floating) and not np.isfinite(answers).all():
        broken = int((~np.isfinite(answers.reshape(len(answers), -1))).any(axis=1).sum())
        raise ModelError(
            f"the model's answers are not finite numbers on {broken} of {len(answers)} rows.",
            hint="weights or activations overflowed: try a wider precision (fp32), or train again at a lower rate",
        )


def _difference(
    kind: Kind, ours: Interval, theirs: Interval, answers: tuple[Answers, Answers], gold: NDArray[Any], larger: bool
) -> Difference:
    sign = 1.0 if larger else -1.0
    gained = percentile_interval(sign * (ours.value - theirs.value), sign * (ours.resampled - theirs.resampled))
    right, also = (kind.correct(given, gold) for given in answers)
    # McNemar's test is about the share of right rows, so it speaks for a metric that is that share, and for no other.
    if _is_share(right, ours.value) and _is_share(also, theirs.value):
        return Difference(**_ends(gained), p_value=mcnemar(right, also), test="mcnemar")
    return Difference(**_ends(gained), p_value=paired_p_value(gained.resampled), test="paired bootstrap")


def _is_share(right: NDArray[np.bool_] | None, value: float) -> TypeGuard[NDArray[np.bool_]]:
    return right is not None and abs(float(right.mean()) - value) < 1e-9


def _ends(interval: Interval) -> dict[str, float]:
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def _score(interval: Interval) -> Score:
    return Score(**_ends(interval))
