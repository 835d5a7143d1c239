"""How good a model's answers are, how sure that is, how they compare with the teacher's, and where they are weak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from compress.measure.quality.bootstrap_scorer import BootstrapScorer, Predictions, to_score
from compress.measure.quality.calibration import calibrate
from compress.measure.quality.disagreement import largest_disagreements
from compress.measure.quality.quality_result import ClassScore, Perturbed, Quality
from compress.measure.quality.subgroup_scores import by_column, by_length, score_groups
from compress.model_info import TaskInfo
from compress.tasks.base import Kind


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
    drawn: BootstrapScorer | None = None,
) -> Quality:
    """Score ``answers`` with intervals, and against the answers of the teacher and the unquantized model where given.

    On test also: calibration, scores by ``lengths`` (pieces of each row) and by the columns of ``slices`` (a value a
    row), how much is lost on ``perturbed`` texts (answers by perturbation), and the rows furthest from the teacher.
    All intervals come from the same draws of rows, so differences are paired. ``drawn``, made once for a task, keeps
    scores between calls, and its own resampling and seed hold; without it every call scores everything anew.
    """
    drawn = drawn or BootstrapScorer(kind, task, resampling, seed)
    scores, teacher, parent = drawn.intervals(answers, gold), teacher_answers, unquantized_answers

    quality = Quality(
        role=role,
        rows=len(gold),
        metric=task.metric,
        larger_is_better=drawn.metric.larger_is_better,
        primary=to_score(scores[task.metric]),
        scores={name: to_score(interval) for name, interval in scores.items()},
        per_class=class_scores(kind, task, answers, gold),
        versus_teacher=None if teacher is None else drawn.difference(answers, teacher, gold),
        versus_unquantized=None if parent is None else drawn.difference(answers, parent, gold),
        agreement_with_teacher=None if teacher is None else agreement(kind, answers, teacher),
        truncated=truncated,
        batch=batch,
    )
    if role != "test":
        return quality
    columns = {} if slices is None else {name: by_column(name, values) for name, values in slices.items()}
    return quality.model_copy(
        update={
            "calibration": calibrate(drawn, answers, gold),
            "by_length": () if lengths is None else score_groups(drawn, by_length(lengths), answers, gold, teacher),
            "slices": {name: score_groups(drawn, groups, answers, gold, teacher) for name, groups in columns.items()},
            "robustness": robustness(drawn, answers, gold, perturbed or {}),
            "disagreements": () if teacher is None else largest_disagreements(kind, task, answers, teacher, gold),
        }
    )


def class_scores(kind: Kind, task: TaskInfo, answers: Predictions, gold: NDArray[Any]) -> dict[str, ClassScore]:
    """Recall, precision and F1 of each class that has rows."""
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


def agreement(kind: Kind, answers: Predictions, others: Predictions) -> float | None:
    """The share of rows on which two models decide the same; None where the kind makes no decisions."""
    same = kind.same_decision(answers, others)
    return None if same is None else float(same.mean())


def robustness(
    drawn: BootstrapScorer, answers: Predictions, gold: NDArray[Any], perturbed: Mapping[str, Predictions]
) -> tuple[Perturbed, ...]:
    """What the same model makes of the same rows with changed texts."""
    return tuple(
        Perturbed(
            name=name,
            primary=to_score(drawn.primary(given, gold)),
            change=drawn.difference(given, answers, gold),
        )
        for name, given in perturbed.items()
    )
