"""Forecasts of trainings whose updates take invented times."""

import numpy as np
import pytest

from compress.console import Console
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Training
from compress.train.core.checkpoints import TrainState
from compress.train.core.update_schedule import MIN_UPDATES, WARMUP_UPDATES, Forecaster, UpdateSchedule

LENGTHS = np.random.default_rng(0).integers(4, 60, 640)


class Clock:
    """A training whose updates cost 1 ms per padded token, and 5 s more while memory is prepared.

    In each phase that is multiplied by one of ``times``, in later epochs by ``again``.
    """

    def __init__(self, epochs=3.0, again=1.0, evaluation=0.0, phases=(), times=(1.0,), **settings):
        kind = Distill if phases else Training
        sections = {"phases": [{"share": share, "soft_label": 1.0} for share in phases]} if phases else {}
        self.plan = UpdateSchedule(LENGTHS, kind(epochs=epochs, batch_size=16, **sections, **settings), 0)
        self.state, self.logged, self.left = TrainState(), [], []
        self.again, self.evaluation, self.times = again, evaluation, times
        self.forecaster = self.begin()

    def begin(self):
        return Forecaster(self.plan, LENGTHS, self.evaluation > 0, self.logged.append)

    def tokens(self, update):
        return sum(len(batch) * int(LENGTHS[batch].max()) for batch in self.plan.batches(update))

    def seconds(self, update):
        pace = self.times[self.plan.phase(update)] * (1.0 if update < self.plan.per_epoch else self.again)
        return 0.001 * self.tokens(update) * pace + (5.0 if update < WARMUP_UPDATES else 0.0)

    def remaining(self, update, end=None):
        return sum(self.seconds(each) for each in range(update, end or self.plan.total))

    def run(self, until=None):
        for update in range(self.state.done, until or self.plan.total):
            seconds = self.seconds(update)
            self.state.done, self.state.seconds = update + 1, self.state.seconds + seconds
            self.forecaster.updated(self.state, seconds)
            self.left.append(self.forecaster.left(self.state))
            if self.evaluation and self.plan.evaluates_after(self.state.done):
                self.state.seconds += self.evaluation
                self.state.evaluating += self.evaluation
                self.state.history.append({})
        return self.state


def test_the_work_is_that_of_all_examples_of_a_row():
    clock = Clock()
    state = clock.run()
    clock.state = TrainState()
    clock.forecaster = Forecaster(clock.plan, LENGTHS, False, clock.logged.append, 4.0)
    of_four = clock.run()
    assert (of_four.pieces, of_four.squares) == (4 * state.pieces, 4 * state.squares)
    assert of_four.forecasts[0]["seconds"] == pytest.approx(state.forecasts[0]["seconds"])


def test_remaining_time_is_estimated_from_few_updates():
    clock = Clock()
    state = clock.run()
    assert state.forecasts[0]["update"] == 6 + WARMUP_UPDATES
    assert state.forecasts[0]["seconds"] == pytest.approx(state.seconds, rel=0.02)
    assert clock.logged[0].startswith("about 1")
    assert clock.logged[0].endswith(" left (estimated from 6 updates)")


def test_mean_losses_are_logged():
    clock = Clock(epochs=1.0)
    clock.run(until=4)
    for _ in range(8):
        clock.state.add_losses({"soft_label": 1.2, "hidden_state": 0.34})
    clock.run()
    assert clock.logged[1:] == ["mean weighted losses so far: soft_label 1.2, hidden_state 0.34"]


def test_later_epochs_are_measured_on_their_own():
    state = Clock(again=0.4).run()
    first, later = state.forecasts
    assert first["seconds"] > 1.2 * state.seconds
    assert later["update"] == 40 + 6 + WARMUP_UPDATES
    assert later["seconds"] == pytest.approx(state.seconds, rel=0.02)


def test_evaluations_are_included_after_the_first():
    clock = Clock(evaluation=30.0)
    state = clock.run()
    first, second = state.forecasts
    assert (first["evaluations"], second["evaluations"]) == (False, True)
    assert first["seconds"] == pytest.approx(state.seconds - 90.0, rel=0.02)
    assert second["seconds"] == pytest.approx(state.seconds, rel=0.02)
    assert "and 3 evaluations left" in clock.logged[0]
    assert "and 3 evaluations left" in clock.left[9]
    assert "evaluation" not in clock.left[60]


def test_short_training_has_no_estimate():
    assert Clock(max_steps=4).run().forecasts == []


def test_progress_shows_remaining_time_once_known():
    clock = Clock()
    clock.run()
    assert clock.left[: WARMUP_UPDATES + MIN_UPDATES - 1] == [""] * (WARMUP_UPDATES + MIN_UPDATES - 1)
    assert clock.left[WARMUP_UPDATES + MIN_UPDATES - 1].endswith(" left")
    assert clock.left[-1] == "0 s left"


def test_remaining_time_is_estimated_again_after_resume():
    clock = Clock()
    clock.run(until=50)
    clock.forecaster, clock.left = clock.begin(), []
    clock.run(until=60)
    assert clock.left[WARMUP_UPDATES + MIN_UPDATES - 2] == ""
    assert clock.left[-1].endswith(" left")


def test_each_phase_is_estimated_separately():
    clock = Clock(phases=(0.3, 0.7), times=(2.0, 1.0))
    state = clock.run()
    first, second = state.forecasts
    edge = round(0.3 * clock.plan.total)
    assert (first["whole"], second["whole"]) == (False, True)
    assert first["seconds"] == pytest.approx(clock.remaining(0, edge), rel=0.05)
    assert second["seconds"] == pytest.approx(state.seconds, rel=0.02)
    assert "in phase 1 of 2 (estimated from 6 updates; later phases are estimated once they start)" in clock.logged[0]
    assert clock.logged[1].endswith(" left (estimated from 6 updates)")
    assert clock.left[20].endswith(" left in phase 1 of 2")
    assert clock.left[edge : edge + WARMUP_UPDATES + MIN_UPDATES - 1] == [""] * (WARMUP_UPDATES + MIN_UPDATES - 1)
    assert "phase" not in clock.left[-1]


def test_phases_without_updates_are_skipped():
    clock = Clock(epochs=1.0, phases=(0.5, 0.001, 0.499), times=(2.0, 9.0, 1.0))
    clock.run()
    assert [forecast["whole"] for forecast in clock.state.forecasts] == [False, True]
    assert "in phase 1 of 3" in clock.logged[0]


class Listening(Console):
    def __init__(self):
        super().__init__("quiet")
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_training_stores_its_estimates(tiny_model, material, tmp_path):
    from compress.train.loop import train
    from compress.train.objective import TaskObjective

    console = Listening()
    settings = Training(epochs=4, batch_size=8, learning_rate=5e-5, precision="fp32")
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
    assert result.pieces == sum(padded)
    assert [forecast["evaluations"] for forecast in result.forecasts] == [False, True]
    assert any(text.startswith("finetune: about") for text in console.notes)
