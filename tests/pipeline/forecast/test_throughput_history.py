"""What one training says of others whose phases go at different paces; their updates take made-up times."""

import numpy as np
import pytest

from compress.measure.timing.step_time_fit import BatchLoad, StepTimes, batch_load
from compress.model_info import ShapeInfo
from compress.pipeline.forecast.throughput_history import rates_of, seconds_of
from compress.pipeline.forecast.training_cost import Lengths, operations, workload
from compress.recipe.training_schema import Distill, Finetune
from compress.train.core.train_state import Cost, TrainResult
from compress.train.core.update_schedule import UpdateSchedule

SHAPE = ShapeInfo(
    family="bert",
    hidden=32,
    heads=(2,),
    ffn=(64,),
    vocabulary=100,
    parameters=10_000,
    embedding_parameters=4_000,
    head_size=16,
)
LENGTHS = np.full(400, 20)
UPDATE = batch_load(LENGTHS[:20])
WORK = operations(SHAPE, UPDATE) / operations(SHAPE, BatchLoad(1, 0))
TIMES = (2.0, 1.0)
"""Seconds of an update in each phase, once the teacher's words stand."""
ASKING = 0.5
"""Seconds more where they do not."""


def settings_of(shares, epochs, **more):
    phases = [{"share": share, "soft_label": 1.0} for share in shares]
    return Distill(phases=phases, epochs=epochs, batch_size=20, **more)


def seconds(plan, update):
    return TIMES[plan.phase(update)] + (ASKING if update < plan.per_epoch else 0.0)


def trained(shares, epochs):
    """A training of which all updates were seen, and what they took together."""
    plan = UpdateSchedule(LENGTHS, settings_of(shares, epochs), 0)
    phases = tuple(StepTimes() for _ in shares)
    for update in range(plan.total):
        paces = phases[plan.phase(update)]
        (paces.first if update < plan.per_epoch else paces.later).add(WORK, seconds(plan, update))
        paces.spared += ASKING if update < plan.per_epoch else 0.0
    took = sum(seconds(plan, update) for update in range(plan.total))
    load = BatchLoad(UPDATE.pieces * plan.total, UPDATE.squares * plan.total)
    told = ({"seconds": 7.0, "evaluations": True, "whole": False}, {"seconds": 9.0, "evaluations": False})
    cost = Cost(load, phases, evaluating=0.0, forecasts=told)
    rows = 20 * plan.total
    return TrainResult(0, None, plan.total, plan.total, rows, took, "fp32", history=(), cost=cost)


def foreseen(rates, shares, epochs):
    work = workload(SHAPE, (SHAPE,), settings_of(shares, epochs), Lengths(len(LENGTHS), LENGTHS))
    return seconds_of(rates, work, 0)


@pytest.mark.parametrize(("shares", "epochs"), [((0.6, 0.4), 10), ((0.5, 0.5), 4), ((0.2, 0.8), 2), ((0.6, 0.4), 1)])
def test_a_try_of_every_phase_foresees_other_shares_and_epochs(shares, epochs):
    rates = rates_of(trained((0.5, 0.5), 4.0), SHAPE, (SHAPE,), 0)
    assert len(rates.phases) == 2
    assert foreseen(rates, shares, epochs) == pytest.approx(trained(shares, epochs).seconds, rel=1e-6)


def test_other_numbers_of_phases_are_foreseen_by_what_all_took_together():
    rates = rates_of(trained((0.5, 0.5), 4.0), SHAPE, (SHAPE,), 0)
    plain = foreseen(rates.model_copy(update={"phases": ()}), (0.5, 0.5), 4.0)
    assert plain == pytest.approx(trained((0.5, 0.5), 4.0).seconds)
    assert foreseen(rates, (0.25, 0.25, 0.5), 4.0) == pytest.approx(plain)


def test_one_phase_needs_no_list():
    assert rates_of(trained((1.0,), 2.0), SHAPE, (SHAPE,), 0).phases == ()


def test_only_what_was_forecast_for_the_whole_is_held_against_it():
    rates = rates_of(trained((0.5, 0.5), 4.0), SHAPE, (SHAPE,), 0)
    assert (rates.foretold, rates.foretold_whole) == (9.0, None)


def test_phases_have_their_parts_of_the_first_epoch_and_of_later_ones():
    def parts(settings):
        return list(workload(SHAPE, (), settings, Lengths(len(LENGTHS), LENGTHS)).parts())

    assert parts(settings_of((0.6, 0.4), 2)) == [pytest.approx((1.0, 0.2)), pytest.approx((0.0, 0.8))]
    assert parts(settings_of((0.25, 0.75), 1)) == [pytest.approx((0.25, 0.0)), pytest.approx((0.75, 0.0))]
    assert parts(Finetune(epochs=3)) == [(1.0, 1.0)]
