"""The threshold of a cascade: how sure the first model must be to answer, tested on select from few texts to many.

Taking the cheapest of many thresholds that seem to pass would flatter it. So they are tested in an order that is fixed
before any is: the most cautious one first, each as the gate tests a candidate, until one does not pass; the last one
that did is used (fixed sequence testing, as in Learn then Test, Angelopoulos and others, 2021).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from compress import format_numbers as fmt
from compress.data.splits.prepare_splits import DataInfo
from compress.errors import DataError, ScreenedOut
from compress.measure.result_base import ResultModel
from compress.select.ledger import GateResult, Outcome

SHARE_STEP = 0.025
"""From one threshold to the next, the first model answers so many more of the texts."""


class CascadePoint(ResultModel):
    """One threshold that was tested."""

    threshold: float
    share: float
    """Of the rows of select, those that the first model answers."""
    drop: float | None
    """Loss against the teacher on select."""
    outcome: Outcome


class CascadeFacts(ResultModel):
    """What a cascade is made of, and how its threshold was found."""

    first: str
    """The key of its row."""
    then: str
    threshold: float
    share: float
    """Of the rows of select, those that the first model answers."""
    test_share: float | None = None
    points: tuple[CascadePoint, ...] = ()
    """The thresholds that were tested, the most cautious first; the last one did not pass, unless all did."""

    def text(self, key: str) -> str:
        """`static-then-pruned/cascade: static/numpy-int8 answers 84 % of select …`, for the row with this key."""
        return (
            f"{key}: {self.first} answers {fmt.percent(self.share)} of select, of which it is at least"
            f" {self.threshold:.4f} sure, and {self.then} the rest"
        )


def check_classes(info: DataInfo) -> None:
    """Refuse data in which a class has no row of select."""
    counts = info.per_class.get("select", {})
    if missing := [name for name in info.labels if not counts.get(name)]:
        raise DataError(
            f"cascade: no row of select has the class '{missing[0]}', so what the first model may answer with it cannot"
            " be tested.",
            hint="hold back more rows (task.data.select_share), or leave out the class or the cascade",
        )


class Threshold(NamedTuple):
    """A threshold, and the share of the rows of select that are answered with it."""

    value: float
    share: float


def thresholds(certainty: NDArray[np.float64]) -> Iterator[Threshold]:
    """Yield thresholds from the most cautious on; rows of equal certainty are answered together.

    Each lies halfway between the certainties of two rows, so that rounding in another batch moves none across it.
    """
    ordered, last = np.sort(certainty)[::-1], 0
    for number in range(1, round(1 / SHARE_STEP) + 1):
        least = ordered[max(0, round(number * SHARE_STEP * len(ordered)) - 1)]
        count = int((certainty >= least).sum())
        if count > last:
            below = ordered[count] if count < len(ordered) else least
            yield Threshold(float(least + below) / 2, count / len(ordered))
        last = count


def find_threshold(
    certainty: NDArray[np.float64], judge: Callable[[NDArray[np.bool_]], GateResult]
) -> tuple[CascadePoint, ...]:
    """Return the thresholds that were tested, in their order; all but the last one, or all, passed.

    Args:
        certainty: of the first model on each row of select.
        judge: judges a cascade in which the first model answers these rows.

    Raises:
        ScreenedOut: the most cautious one does not pass.
    """
    points: list[CascadePoint] = []
    for value, share in thresholds(certainty):
        result = judge(certainty >= value)
        points.append(CascadePoint(threshold=value, share=share, drop=result.drop, outcome=result.outcome))
        if result.outcome != "passed":
            if len(points) == 1:
                raise ScreenedOut(
                    f"no threshold passes: with {share:.1%} of the texts answered by the first model it {result.why}."
                )
            break
    return tuple(points)


def passed(points: tuple[CascadePoint, ...]) -> CascadePoint:
    """Return the last threshold that passed."""
    return [point for point in points if point.outcome == "passed"][-1]
