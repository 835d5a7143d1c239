"""What trainings cost on this machine: noted after each, and turned around to forecast others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from compress.measure.timing.step_time_fit import MIN_UPDATES, BatchLoad, StepTimes
from compress.pipeline.forecast.training_cost import Workload, operations

if TYPE_CHECKING:
    from compress.model_info import ShapeInfo
    from compress.train.core.train_state import TrainResult


class Speed(BaseModel):
    """How fast updates were, in terms that carry over to other lengths, depths and widths."""

    model_config = ConfigDict(frozen=True)

    update: float
    """Seconds of an update whatever is in it."""
    operation: float
    """Seconds an operation of the models."""
    again: float
    """What an update of a later epoch takes, as a share of one of the first: what a teacher said may be kept."""


class Rates(Speed):
    """How fast one training was, all phases together, and what else is known of it."""

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
    phases: tuple[Speed, ...] = ()
    """Of each phase, where there are several and all were seen."""


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
    cost, paces = result.cost, result.cost.paces
    load = cost.load
    total = 3 * operations(student, load) + sum(operations(each, load) for each in teachers)
    forward = operations(student, load)
    if paces.first.count < 1 or total <= 0:
        return None
    pair = operations(student, BatchLoad(0, 1)) / operations(student, BatchLoad(1, 0))
    an_operation = (load.pieces + pair * load.squares) / total
    asking = paces.spared / paces.first.work
    looks = len(result.history)
    select = forward * select_rows / result.rows if result.rows else 0.0
    foretold = [told for told in cost.forecasts if told.get("whole", True)]
    several = len(cost.phases) > 1 and all(each.known for each in cost.phases)
    return Rates(
        **_speed(paces, asking, an_operation).model_dump(),
        parameters=student.parameters,
        evaluation=cost.evaluating / looks / select if looks and select else None,
        trained=result.seconds * restarts,
        foretold=next((told["seconds"] for told in foretold), None),
        foretold_whole=next((told["seconds"] for told in foretold if told["evaluations"]), None),
        evaluating=cost.evaluating,
        phases=tuple(_speed(each, asking, an_operation) for each in cost.phases) if several else (),
    )


def _speed(paces: StepTimes, asking: float, an_operation: float) -> Speed:
    """In seconds an operation, from paces by work.

    A phase that began in a later epoch would have asked the teacher in the first: ``asking`` is seconds a unit of work.
    """
    (update, slope), again = paces.first.line(), paces.again
    if paces.first.count < MIN_UPDATES <= paces.later.count:
        (update, slope), asked = paces.later.line(), asking * paces.later.work
        slope, again = slope + asking, paces.later.seconds / (paces.later.seconds + asked)
    return Speed(update=update, operation=slope * an_operation, again=again)


def seconds_of(rates: Rates, work: Workload, select_rows: int) -> float:
    """What a training will take at these rates, evaluations included."""
    every = work.first + work.later
    rows = len(work.lengths) * sum(work.updates) / work.per_epoch
    select = operations(work.student, every) * select_rows / rows
    looks = work.evaluations * (rates.evaluation or 0.0) * select
    return work.restarts * (_updates(rates, work) + looks)


def _updates(rates: Rates, work: Workload) -> float:
    """Seconds of all updates: phase by phase where the rates tell of as many, else by what they are together."""
    alike = len(rates.phases) == len(work.phases)
    parts = zip(rates.phases, work.parts(), strict=True) if alike else [(rates, (1.0, 1.0))]
    size = work.student.parameters / rates.parameters
    seconds = 0.0
    for speed, (first, later) in parts:
        seconds += first * (speed.update * size * work.updates[0] + speed.operation * work.flops(work.first))
        again = speed.update * size * work.updates[1] + speed.operation * work.flops(work.later)
        seconds += later * speed.again * again
    return seconds
