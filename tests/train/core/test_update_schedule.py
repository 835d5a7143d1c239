import numpy as np
import pytest

from compress.data.encode import bucketed_batches
from compress.recipe.training_schema import Training
from compress.train.core import update_schedule as plans
from compress.train.core.update_schedule import UpdateSchedule

LENGTHS = np.arange(50) % 13 + 3


def plan(**settings):
    return UpdateSchedule(LENGTHS, Training(**{"epochs": 2, "batch_size": 8, **settings}), seed=3)


def test_every_row_is_seen_once_an_epoch():
    made = plan(accumulate=3)
    assert (made.per_epoch, made.total) == (3, 6)
    for epoch in range(2):
        updates = range(epoch * made.per_epoch, (epoch + 1) * made.per_epoch)
        seen = np.concatenate([batch for update in updates for batch in made.batches(update)])
        assert sorted(seen) == list(range(50))


def test_batches_are_a_pure_function_of_seed_and_update():
    first, second = plan(), plan()
    late = [batch.tolist() for batch in first.batches(11)]
    assert [batch.tolist() for batch in second.batches(11)] == late
    other = UpdateSchedule(LENGTHS, Training(epochs=2, batch_size=8), seed=4)
    assert [batch.tolist() for batch in other.batches(11)] != late


def test_epochs_may_be_parts_and_steps_may_be_capped():
    assert plan(epochs=0.5).total == 4
    assert plan(epochs=1.5).total == 11
    assert plan(max_steps=5).total == 5
    assert plan(max_steps=500).total == 14


def test_rows_of_all_updates():
    assert plan().rows == 100
    part = plan(epochs=1.5)
    assert part.rows == sum(len(batch) for update in range(part.total) for batch in part.batches(update))


def test_the_rate_rises_and_falls():
    made = plan(warmup=0.2)
    rates = [made.factor(update) for update in range(14)]
    assert rates[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert rates[3] == 1.0
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert 0 < rates[-1] < 0.1


def test_rates_of_other_decays():
    assert {plan(decay="constant", warmup=0).factor(update) for update in range(14)} == {1.0}
    cosine = plan(decay="cosine", warmup=0)
    assert [cosine.factor(update) for update in (0, 7)] == pytest.approx([1.0, 0.5])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [7, 14]),
        ({"evaluations": 2}, [4, 7, 11, 14]),
        ({"evaluations": 100}, list(range(1, 15))),
        ({"max_steps": 5}, [5]),
        ({"epochs": 1.5}, [7, 11]),
    ],
)
def test_evaluations_are_spread_over_the_epoch_and_end_with_the_last(settings, expected):
    made = plan(**settings)
    assert [done for done in range(1, made.total + 1) if made.evaluates_after(done)] == expected


def test_each_epoch_is_generated_once(monkeypatch):
    """Though the next update's batches are asked for, and a forecast asks for those of the last one again."""
    made = []
    monkeypatch.setattr(plans, "bucketed_batches", lambda *given: made.append(given[-1]) or bucketed_batches(*given))
    wanted = plan(epochs=4)
    for update in range(wanted.total):
        wanted.batches(update)
        if update + 1 < wanted.total:
            wanted.batches(update + 1)
        wanted.batches(update)
    assert made == [0, 1, 2, 3]


def open_plan(least=2, most=10, **settings):
    return plan(epochs={"least": least, "most": most}, **settings)


def test_with_bounds_the_rate_stays_until_the_end_is_decided():
    made = open_plan(warmup=0.1)
    assert (made.least, made.total, made.warmup) == (14, 70, 2)
    assert [made.factor(update) for update in (0, 1, 2, 69)] == pytest.approx([0.5, 1.0, 1.0, 1.0])
    made.end_soon(8)
    assert made.total == 16
    assert [made.factor(update) for update in (7, 8, 9, 15)] == pytest.approx([1, 1, 7 / 8, 1 / 8])
    assert [done for done in range(1, 17) if made.evaluates_after(done)] == [7, 14, 16]


def test_the_end_is_decided_within_the_bounds():
    made = open_plan()
    assert [made.may_end_soon(done) for done in (6, 7)] == [False, True]
    assert [made.must_end_soon(done) for done in (34, 35)] == [False, True]
    made.end_soon(35)
    assert made.total == 70
    assert open_plan(max_steps=12).total == 12
    assert open_plan(max_steps=12).least == 12
    assert not plan().may_end_soon(14)


def test_an_earlier_end_of_a_given_number_of_epochs_lets_the_rate_fall_faster():
    made, whole = plan(warmup=0), plan(warmup=0)
    assert [made.would_end_sooner(done) for done in (6, 7)] == [True, False]
    made.end_soon(2)
    assert made.total == 4
    assert made.factor(1) == whole.factor(1)
    assert [made.factor(update) for update in (2, 3)] == [whole.factor(2), pytest.approx(whole.factor(3) / 2)]
