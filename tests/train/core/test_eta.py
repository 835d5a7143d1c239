"""Forecasts of trainings whose updates take made-up times."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from compress.console import Console, duration
from compress.measure.timing.step_time_fit import MIN_UPDATES
from compress.recipe.training_schema import Distill, Training
from compress.train.core.eta import WARMUP_UPDATES, Forecaster
from compress.train.core.train_state import TrainState
from compress.train.core.update_schedule import UpdateSchedule

LENGTHS = np.random.default_rng(0).integers(4, 60, 640)


class Clock:
    """A training of which an update costs 0.2 s, and a padded piece 1 ms; and 5 s more while memory is prepared.

    In each phase that is so many times as much.
    """

    def __init__(self, epochs=3.0, again=1.0, evaluation=0.0, phases=(), times=(1.0,), **settings):
        kind = Distill if phases else Training
        told = {"phases": [{"share": share, "soft_label": 1.0} for share in phases]} if phases else {}
        self.plan = UpdateSchedule(LENGTHS, kind(epochs=epochs, batch_size=16, **told, **settings), 0)
        self.state, self.said, self.again, self.evaluation = TrainState(), [], again, evaluation
        self.times, self.left = times, []
        self._spared, self.evaluates = 0.0, evaluation > 0
        self.forecaster = self.begin()

    def begin(self):
        return Forecaster(self.plan, LENGTHS, 0.0, lambda: self._spared, self.said.append, self.evaluates)

    def took(self, update):
        pieces = sum(len(batch) * LENGTHS[batch].max() for batch in self.plan.batches(update))
        seconds = (0.2 + 0.001 * pieces) * self.times[self.plan.phase(update)]
        first = update < self.plan.per_epoch
        if first:
            self._spared += (1 - self.again) * seconds
        return seconds * (1.0 if first else self.again) + (5.0 if update < WARMUP_UPDATES else 0.0)

    def to_come(self, update, end=None):
        return sum(self.took(each) for each in range(update, end or self.plan.total))

    def run(self, until=None):
        for update in range(self.state.done, until or self.plan.total):
            seconds = self.took(update)
            self.state.done, self.state.seconds = update + 1, self.state.seconds + seconds
            self.forecaster.updated(self.state, seconds)
            self.left.append(self.forecaster.left(self.state))
            if self.evaluates and self.plan.evaluates_after(self.state.done):
                self.state.seconds += self.evaluation
                self.state.history.append({})
                self.forecaster.evaluated(self.state, self.evaluation)
        return self.state


def test_remaining_time_is_estimated_from_few_updates():
    clock = Clock()
    state = clock.run()
    (told,) = state.forecasts
    assert told["update"] == 6 + WARMUP_UPDATES
    assert told["seconds"] == pytest.approx(state.seconds, rel=1e-6)
    assert len(clock.said) == 1
    assert clock.said[0].endswith(" left (estimated from 6 updates)")


def test_mean_losses_are_logged_once():
    clock = Clock()
    clock.run(until=4)
    for _ in range(8):
        clock.state.add_losses({"soft_label": 1.2, "hidden_state": 0.34})
    clock.run()
    assert clock.said[1:] == ["mean weighted losses so far: soft_label 1.2, hidden_state 0.34"]


def test_cached_outputs_are_considered():
    state = Clock(again=0.4).run()
    assert state.forecasts[0]["seconds"] == pytest.approx(state.seconds, rel=1e-6)


def test_evaluations_are_included_after_the_first():
    clock = Clock(evaluation=30.0)
    state = clock.run()
    first, second = state.forecasts
    assert not first["evaluations"]
    assert first["seconds"] == pytest.approx(state.seconds - 90.0, rel=1e-6)
    assert second["evaluations"]
    assert second["seconds"] == pytest.approx(state.seconds, rel=1e-6)
    assert "and 3 evaluations left" in clock.said[0]


def test_resumed_training_remembers_its_measurements():
    whole, broken = Clock(), Clock()
    broken.run(until=30)
    broken.forecaster = broken.begin()
    assert broken.run().paces(0).first.count == whole.run().paces(0).first.count - WARMUP_UPDATES
    assert (broken.state.pieces, broken.state.squares) == (whole.state.pieces, whole.state.squares)
    assert len(broken.said) == 1


def test_short_training_has_no_estimate():
    assert Clock(max_steps=4).run().forecasts == []


def test_progress_shows_remaining_time_once_known():
    clock = Clock(again=0.4)
    clock.run()
    assert clock.left[: WARMUP_UPDATES + MIN_UPDATES - 1] == [""] * (WARMUP_UPDATES + MIN_UPDATES - 1)
    for update in (10, 60, 100):  # in the first epoch, and in later ones where the teacher's words are read
        assert clock.left[update - 1] == f"{duration(clock.to_come(update))} left"
    assert clock.left[-1] == "0 s left"


@pytest.mark.parametrize("killed", [30, 70])
def test_remaining_time_is_known_after_resume(killed):
    clock = Clock(again=0.4)
    clock.run(until=killed)
    clock.state = TrainState.of(json.loads(json.dumps(asdict(clock.state))))
    clock.forecaster, clock.left = clock.begin(), []
    clock.run(until=killed + 1)
    assert clock.left == [f"{duration(clock.to_come(killed + 1))} left"]


def test_remaining_time_includes_evaluations():
    clock = Clock(evaluation=30.0)
    clock.run()
    assert clock.left[9] == f"{duration(clock.to_come(10))} and 3 evaluations left"
    assert clock.left[49] == f"{duration(clock.to_come(50) + 60)} left"


def test_each_phase_is_estimated_separately():
    clock = Clock(phases=(0.6, 0.4), times=(2.0, 1.0))
    state = clock.run()
    first, second = state.forecasts
    edge = round(0.6 * clock.plan.total)
    assert (first["whole"], second["whole"]) == (False, True)
    assert first["seconds"] == pytest.approx(clock.to_come(0, edge), rel=1e-6)
    assert second["seconds"] == pytest.approx(state.seconds, rel=1e-6)
    assert second["update"] == edge + WARMUP_UPDATES + 6
    (early, late) = clock.said
    assert early.endswith("in phase 1 of 2 (estimated from 6 updates; later phases are estimated once they start)")
    assert late == f"about {duration(clock.to_come(second['update']))} left (estimated from 6 updates of phase 2)"
    assert clock.left[49] == f"{duration(clock.to_come(50, edge))} left in phase 1 of 2"
    assert clock.left[edge - 1 : edge + WARMUP_UPDATES + MIN_UPDATES - 1] == [""] * (WARMUP_UPDATES + MIN_UPDATES)
    assert clock.left[99] == f"{duration(clock.to_come(100))} left"


def test_a_phase_that_begins_late_is_known_by_its_later_updates():
    state = Clock(phases=(0.5, 0.5), times=(2.0, 1.0), epochs=4.0, again=0.5).run()
    assert (state.paces(1).first.count, state.paces(1).later.count) == (0, 80 - WARMUP_UPDATES)
    assert state.forecasts[-1]["seconds"] == pytest.approx(state.seconds, rel=1e-6)


def test_phases_without_updates_are_skipped():
    clock = Clock(phases=(0.5, 0.001, 0.499), times=(2.0, 9.0, 1.0))
    clock.run()
    assert [told["phase"] for told in clock.state.forecasts] == [0, 2]
    assert "in phase 1 of 3" in clock.said[0]
    assert clock.said[1].endswith("updates of phase 3)")


class Listening(Console):
    def __init__(self):
        super().__init__("quiet")
        self.said = []

    def note(self, text):
        self.said.append(text)


def test_training_stores_its_estimates(tiny_model, material, tmp_path):
    from compress.train.loop import train
    from compress.train.objective import TaskObjective

    console = Listening()
    settings = Training(epochs=4, batch_size=8, precision="fp32")
    result = train(
        tiny_model("bert"),
        TaskObjective(material.task),
        material.train,
        settings,
        seed=0,
        work=tmp_path,
        evaluate=lambda model: 0.5,
        console=console,
        label="finetune",
    )
    plan = UpdateSchedule(material.train.lengths, settings, 0)
    padded = [
        len(batch) * int(material.train.lengths[batch].max())
        for update in range(plan.total)
        for batch in plan.batches(update)
    ]
    assert result.cost.load.pieces == sum(padded)
    assert result.cost.paces.first.count == plan.per_epoch - WARMUP_UPDATES
    assert result.cost.paces.later.count == plan.total - plan.per_epoch
    assert [told["evaluations"] for told in result.cost.forecasts] == [False, True]
    assert any(text.startswith("finetune: about") for text in console.said)
