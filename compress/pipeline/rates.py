"""What trainings cost on this machine: noted after each, and turned around to forecast others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from compress.measure.pace import Load
from compress.pipeline.workload import Workload, operations

if TYPE_CHECKING:
    from compress.folder import ShapeInfo
    from compress.train.record import TrainResult

ENOUGH = 5
"""Updates that tell how much faster later epochs are."""


class Rates(BaseModel):
    """How fast one training was, in terms that carry over to other lengths, depths and widths."""

    model_config = ConfigDict(frozen=True)

    update: float
    """Seconds of an update whatever is in it."""
    operation: float
    """Seconds an operation of the models."""
    again: float
    """What an update of a later epoch takes, as a share of one of the first: what a teacher said may be kept."""
    parameters: int
    """Of the trained model: an update without anything in it moves them all."""
    evaluation: float | None
    """Seconds of an evaluation, an operation of a forward pass over select."""
    trained: float
    """Seconds of all trainings, evaluations included; what a step took beyond that is everything else."""
    foretold: float | None = None
    """Seconds that the training itself forecast for its updates, from its first ones."""
    foretold_whole: float | None = None
    """The same with evaluations, once it had seen one."""
    evaluating: float = 0.0
    """Seconds of one training that evaluations took."""


def rates_of(
    result: TrainResult,
    student: ShapeInfo,
    teachers: tuple[ShapeInfo, ...],
    select_rows: int,
    restarts: int = 1,
) -> Rates | None:
    """The rates of a training; None where its models' operations are not known or it was too short to tell.

    Args:
        result: of the training.
        student: the trained model.
        teachers: those that were asked.
        select_rows: rows of select, taken to be as long as those of train.
        restarts: trainings that took about as long.
    """
    cost = result.cost
    load, pace = cost.load, cost.pace
    total = 3 * operations(student, load) + sum(operations(each, load) for each in teachers)
    forward = operations(student, load)
    if pace.count < 1 or total <= 0:
        return None
    update, slope = pace.line()
    pair = operations(student, Load(0, 1)) / operations(student, Load(1, 0))
    work = load.pieces + pair * load.squares
    later = cost.later_pace
    again = 1.0 - cost.spared / pace.seconds if pace.seconds else 1.0
    if later.count >= ENOUGH:
        again = later.seconds / pace.forecast(later.count, later.work)
    looks = len(result.history)
    select = forward * select_rows / result.rows if result.rows else 0.0
    return Rates(
        update=update,
        operation=slope * work / total,
        again=again,
        parameters=student.parameters,
        evaluation=cost.evaluating / looks / select if looks and select else None,
        trained=result.seconds * restarts,
        foretold=next((told["seconds"] for told in cost.forecasts), None),
        foretold_whole=next((told["seconds"] for told in cost.forecasts if told["evaluations"]), None),
        evaluating=cost.evaluating,
    )


def seconds_of(rates: Rates, work: Workload, select_rows: int) -> float:
    """What a training will take at these rates, evaluations included."""
    base = rates.update * work.student.parameters / rates.parameters
    first = base * work.updates[0] + rates.operation * work.flops(work.first)
    later = base * work.updates[1] + rates.operation * work.flops(work.later)
    every = work.first + work.later
    rows = len(work.lengths) * sum(work.updates) / work.per_epoch
    select = operations(work.student, every) * select_rows / rows
    looks = work.evaluations * (rates.evaluation or 0.0) * select
    return work.restarts * (first + rates.again * later + looks)
