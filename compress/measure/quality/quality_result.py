"""What is told of a model's answers: scores with intervals, beside the teacher's, and where they are weak.

These are the types alone; ``assess`` fills them in.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Literal

from compress.measure.result_base import ResultModel, Score

TWO_SIDED = 1.96
"""Standard deviations that chance stays within on 19 of 20 test sets."""
ROUNDING = 1e-9


class Difference(ResultModel):
    """A model's primary score minus another's on the same rows, turned so that below zero is always a loss."""

    value: float
    low: float
    high: float
    p_value: float
    """How likely so large a difference is between equally good models."""
    test: Literal["mcnemar", "paired bootstrap"]


class ClassScore(ResultModel):
    """How well one class was found."""

    rows: int
    """Rows that are truly of this class."""
    recall: float
    precision: float | None = None
    """None where nothing was taken for this class."""
    f1: float | None = None


class Bin(ResultModel):
    """Decisions of about the same confidence."""

    confidence: float
    """What the model said, on average."""
    correct: float
    """How often it was right."""
    rows: int
    """Decisions in the bin: rows where each row has one."""


class Calibration(ResultModel):
    """Whether a model is right as often as it says (expected calibration error; Naeini and others, 2015).

    Bins hold equal numbers of decisions, up to 15 of them; equal confidences stay together, so there may be fewer.
    """

    error: Score
    """The mean distance between confidence and correctness over the bins, weighted by their decisions. Chance alone
    makes it larger than zero, and a resample makes it larger still: the interval is the basic bootstrap's, which turns
    that surplus around."""
    by_chance: float | None = None
    """The error that a perfectly calibrated model of the same confidences would exceed on one test set in twenty."""
    bins: tuple[Bin, ...] = ()
    over_confident: bool = False
    """It says more than it holds on average, by more than chance."""

    @property
    def lean(self) -> Literal["overconfident", "underconfident", "neither"]:
        """Which way confidence and correctness differ on average; `neither` where chance explains it.

        Chance is what decisions do that are right exactly as often as the model says, on 19 of 20 test sets.
        """
        surplus = sum(each.rows * (each.confidence - each.correct) for each in self.bins)
        # Rounding may take a mean of certainties a last digit beyond one.
        chance = sqrt(sum(each.rows * each.confidence * max(0.0, 1.0 - each.confidence) for each in self.bins))
        if abs(surplus) <= TWO_SIDED * chance + ROUNDING:
            return "neither"
        return "overconfident" if surplus > 0 else "underconfident"


class SliceScore(ResultModel):
    """The primary score on some of the rows."""

    name: str
    """`1-9 pieces`, or the value of the column."""
    rows: int
    primary: Score | None = None
    versus_teacher: Difference | None = None
    reason: str | None = None
    """Why there is no score: too few rows, or a metric that means nothing on them."""


class Perturbed(ResultModel):
    """The primary score on the same rows with their texts changed."""

    name: str
    """Key of ``robustness.PERTURBATIONS``."""
    primary: Score
    change: Difference
    """Against the same variant's answers to the texts as they are."""


class Disagreement(ResultModel):
    """A row on which a model and its teacher are far apart; never the text of the row."""

    row: int
    """Its number in test, from 0."""
    distance: float
    """As ``Kind.distance`` counts it; one kind's distances compare with each other only."""
    ours: str
    """The answer in words."""
    teachers: str
    gold: str


class Quality(ResultModel):
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
    calibration: Calibration | None = None
    """None where the kind gives no probabilities, and on select; as are all of the following."""
    by_length: tuple[SliceScore, ...] = ()
    """By quartiles of the rows' lengths in pieces, shortest first."""
    slices: Mapping[str, tuple[SliceScore, ...]] = {}
    """By column that the recipe names, and by its values, most rows first (ranges of numbers: in their order)."""
    robustness: tuple[Perturbed, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    """The rows on which the model and the teacher's reference variant are furthest apart: other decisions first."""
