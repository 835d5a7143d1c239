"""Forecasts of trainings whose updates take made-up times."""

import numpy as np
import pytest

from compress.recipe.training import Training
from compress.train.forecast import SKIPPED, Forecaster
from compress.train.plan import Plan
from compress.train.record import State

LENGTHS = np.random.default_rng(0).integers(4, 60, 640)


class Clock:
    """A training of which an update costs 0.2 s, and a padded piece 1 ms; and 5 s more while memory is prepared."""

    def __init__(self, epochs=3.0, again=1.0, evaluation=0.0, **settings):
        self.plan = Plan(LENGTHS, Training(epochs=epochs, batch_size=16, **settings), 0)
        self.state, self.said, self.again, self.evaluation = State(), [], again, evaluation
        self._spared, self.evaluates = 0.0, evaluation > 0
        self.forecaster = self.begin()

    def begin(self):
        return Forecaster(self.plan, LENGTHS, 0.0, lambda: self._spared, self.said.append, self.evaluates)

    def took(self, update):
        pieces = sum(len(batch) * LENGTHS[batch].max() for batch in self.plan.batches(update))
        seconds = 0.2 + 0.001 * pieces
        first = update < self.plan.per_epoch
        if first:
            self._spared += (1 - self.again) * seconds
        return seconds * (1.0 if first else self.again) + (5.0 if update < SKIPPED else 0.0)

    def run(self, until=None):
        for update in range(self.state.done, until or self.plan.total):
            seconds = self.took(update)
            self.state.done, self.state.seconds = update + 1, self.state.seconds + seconds
            self.forecaster.updated(self.state, seconds)
            if self.evaluates and self.plan.evaluates_after(self.state.done):
                self.state.seconds += self.evaluation
                self.state.history.append({})
                self.forecaster.evaluated(self.state, self.evaluation)
        return self.state


def test_the_end_is_known_from_a_few_updates_of_any_length():
    clock = Clock()
    state = clock.run()
    (told,) = state.forecasts
    assert told["update"] == 6 + SKIPPED
    assert told["seconds"] == pytest.approx(state.seconds, rel=1e-6)
    assert len(clock.said) == 1
    assert clock.said[0].endswith("to go, as 6 updates tell")


def test_losses_are_told_once_so_that_they_can_be_weighed():
    clock = Clock()
    clock.run(until=4)
    for _ in range(8):
        clock.state.add_losses({"soft_label": 1.2, "hidden_state": 0.34})
    clock.run()
    assert clock.said[1:] == ["losses so far: soft_label 1.2, hidden_state 0.34"]


def test_what_is_kept_after_the_first_epoch_is_foreseen():
    state = Clock(again=0.4).run()
    assert state.forecasts[0]["seconds"] == pytest.approx(state.seconds, rel=1e-6)


def test_evaluations_count_once_one_was_seen():
    clock = Clock(evaluation=30.0)
    state = clock.run()
    first, second = state.forecasts
    assert not first["evaluations"]
    assert first["seconds"] == pytest.approx(state.seconds - 90.0, rel=1e-6)
    assert second["evaluations"]
    assert second["seconds"] == pytest.approx(state.seconds, rel=1e-6)
    assert "and 3 evaluations to go" in clock.said[0]


def test_a_training_that_goes_on_knows_what_it_had_seen():
    whole, broken = Clock(), Clock()
    broken.run(until=30)
    broken.forecaster = broken.begin()
    assert broken.run().pace["count"] == whole.run().pace["count"] - SKIPPED
    assert (broken.state.pieces, broken.state.squares) == (whole.state.pieces, whole.state.squares)
    assert len(broken.said) == 1


def test_a_training_that_is_soon_over_is_not_forecast():
    assert Clock(max_steps=4).run().forecasts == []


def test_the_loop_keeps_what_it_said(tiny_model, material, tmp_path):
    from compress.train.loop import train
    from compress.train.objective import TaskObjective

    said = []

    class Listening:
        format = "quiet"

        def __getattr__(self, name):
            from compress.console import Console

            return getattr(Console("quiet"), name)

        def note(self, text):
            said.append(text)

    settings = Training(epochs=4, batch_size=8, precision="fp32")
    result = train(
        tiny_model("bert"),
        TaskObjective(material.task),
        material.train,
        settings,
        seed=0,
        work=tmp_path,
        evaluate=lambda model: 0.5,
        console=Listening(),
        label="finetune",
    )
    plan = Plan(material.train.lengths, settings, 0)
    padded = [
        len(batch) * int(material.train.lengths[batch].max())
        for update in range(plan.total)
        for batch in plan.batches(update)
    ]
    assert result.cost.load.pieces == sum(padded)
    assert result.cost.pace.count == plan.per_epoch - SKIPPED
    assert result.cost.later_pace.count == plan.total - plan.per_epoch
    assert [told["evaluations"] for told in result.cost.forecasts] == [False, True]
    assert any(text.startswith("finetune: about") for text in said)
