"""Types for the quality of a model's predictions: scores with intervals, against the teacher's, and weak spots.

``score_model`` fills them in.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Literal

from compress.measure.quality.significance import highest_share
from compress.measure.result_base import ResultModel, Score

TWO_SIDED = 1.96
"""Standard deviations that random variation stays within on 19 of 20 test sets."""
ROUNDING = 1e-9
"""0.91 - 0.90 is 0.01 and a little in floating point; that little is no difference."""


class Changed(ResultModel):
    """Rows that only one of two models has right."""

    lost: int
    won: int
    rows: int
    """All rows."""

    def most_lost(self, chance: float) -> float:
        """Return the loss, as a share of all rows, that would lose so few of them with this chance.

        Resamples of rows without a lost one have none, and would say that a loss is impossible.
        """
        return highest_share(self.lost, self.rows, chance) - self.won / self.rows

    def most_lost_of(self, times: float, chance: float) -> float:
        """Return it for so many times the rows, as many of them lost and won in proportion."""
        lost, won, rows = (round(times * count) for count in (self.lost, self.won, self.rows))
        return Changed(lost=lost, won=won, rows=rows).most_lost(chance)


class Difference(ResultModel):
    """A model's primary score minus another's on the same rows, turned so that below zero is always a loss."""

    value: float
    low: float
    high: float
    p_value: float
    """Probability of so large a difference between equally good models."""
    test: Literal["mcnemar", "paired bootstrap"]
    changed: Changed | None = None
    """Of a share of right rows; None for other scores, and for two files of one model, whose answers are the same."""


class ClassScore(ResultModel):
    """Recall, precision and F1 of one class."""

    rows: int
    """Rows whose gold label is this class."""
    recall: float
    precision: float | None = None
    """None where the class was never predicted."""
    f1: float | None = None
    recall_p_value: float | None = None
    """Probability of so large a change of recall against the teacher's if both were equally good (sign test over the
    rows that gained or lost); None on select, and for the teacher."""


class ClassPair(ResultModel):
    """A class that was taken for another."""

    true: str
    predicted: str
    count: int


class Confusion(ResultModel):
    """How often each class was predicted as each: counts alone, no texts."""

    unit: str
    """What is counted: `rows`, `words`."""
    names: tuple[str, ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()
    """By true class (lines) and predicted class (columns), in the order of ``names``; empty for many classes."""
    pairs: tuple[ClassPair, ...] = ()
    """For many classes, the most frequent errors."""


class Bin(ResultModel):
    """Decisions of about equal confidence."""

    confidence: float
    """Mean probability of the decisions."""
    correct: float
    """Share of right decisions."""
    rows: int
    """Decisions in the bin: rows where each row has one."""


class Calibration(ResultModel):
    """Whether a model is right as often as its confidence says (expected calibration error; Naeini and others, 2015).

    Bins hold equal numbers of decisions, up to 15 of them; equal confidences stay together, so there may be fewer.
    """

    error: Score
    """The mean distance between confidence and correctness over the bins, weighted by their decisions. Chance alone
    makes it larger than zero, and resampling makes it larger still: the interval is the basic bootstrap's, which
    reflects that bias."""
    by_chance: float | None = None
    """The error that a perfectly calibrated model of the same confidences would exceed on one test set in twenty."""
    bins: tuple[Bin, ...] = ()
    over_confident: bool = False
    """Its mean confidence exceeds its accuracy by more than chance."""

    @property
    def lean(self) -> Literal["overconfident", "underconfident", "neither"]:
        """Return how confidence and correctness differ on average; `neither` where chance explains it.

        Chance: decisions that are right exactly as often as their confidence says stay within it on 19 of 20 test sets.
        """
        surplus = sum(each.rows * (each.confidence - each.correct) for each in self.bins)
        # Rounding may make a mean of certainties slightly larger than one.
        chance = sqrt(sum(each.rows * each.confidence * max(0.0, 1.0 - each.confidence) for each in self.bins))
        if abs(surplus) <= TWO_SIDED * chance + ROUNDING:
            return "neither"
        return "overconfident" if surplus > 0 else "underconfident"


class SliceScore(ResultModel):
    """The primary score on a subgroup of the rows."""

    name: str
    """`1-9 pieces`, or the value of the column."""
    rows: int
    primary: Score | None = None
    versus_teacher: Difference | None = None
    reason: str | None = None
    """Why there is no score: too few rows, or a metric that is undefined on them."""


class Perturbed(ResultModel):
    """The primary score on the same rows with perturbed texts."""

    name: str
    """Key of ``robustness.PERTURBATIONS``."""
    primary: Score
    change: Difference
    """Against the same variant's predictions on the original texts."""


class Disagreement(ResultModel):
    """A row on which a model and its teacher differ much; never the text of the row."""

    row: int
    """Its number in test, from 0."""
    distance: float
    """As ``Kind.distance`` counts it; one kind's distances compare with each other only."""
    ours: str
    """The prediction in words."""
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
    """Without classes that have no row in this role."""
    versus_teacher: Difference | None = None
    """None for the teacher's own reference variant."""
    versus_unquantized: Difference | None = None
    """For quantized variants: against the same model before quantization."""
    agreement_with_teacher: float | None = None
    """Share of rows with the same decision; None where the task has no decisions."""
    truncated: float | None = None
    """Share of rows that were cut at the task's max_length."""
    batch: int | None = None
    """Rows of a batch when scored; set where predictions depend on it (dynamic INT8)."""
    calibration: Calibration | None = None
    """None for kinds without probabilities, and on select, as all of the following."""
    by_length: tuple[SliceScore, ...] = ()
    """By quartiles of the rows' lengths in pieces, shortest first."""
    slices: Mapping[str, tuple[SliceScore, ...]] = {}
    """By the columns of the recipe's `slices` and by value, most rows first (ranges of numbers: in their order)."""
    robustness: tuple[Perturbed, ...] = ()
    confusion: Confusion | None = None
    """None for kinds without classes."""
    disagreements: tuple[Disagreement, ...] = ()
    """The rows on which model and reference variant of the teacher differ most: different decisions first."""
