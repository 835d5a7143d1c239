import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Checkpoints, Training
from compress.train import precision as module
from compress.train.core.shares import ShareThreads
from compress.train.distill import distill_from_model
from compress.train.loop import train
from compress.train.objective import TaskObjective
from compress.train.precision import FOLDER, PrecisionChoice, PrecisionTrial, always_tried

SETTINGS = {"epochs": 2, "batch_size": 16, "learning_rate": 3e-3}
GAIN_FOR = {"bf16": 0.0, "fp32": 1e9}
"""The gain that is asked for, so that a trial chooses this precision whatever it measures."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    cpu = SimpleNamespace(model="a CPU", instructions=("avx512_bf16",), has_bf16=True)
    monkeypatch.setattr(module, "describe_cpu", lambda: cpu)
    return tmp_path / "cache" / FOLDER


@pytest.fixture
def trials(monkeypatch):
    """The gains that trials measured."""
    gains, gain = [], PrecisionTrial.gain

    def recorded(self, updates):
        states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
        gains.append(gain(self, updates))
        assert torch.equal(states[0], torch.get_rng_state())
        assert states[1] == random.getstate()
        assert (states[2] == np.random.get_state()[1]).all()
        return gains[-1]

    monkeypatch.setattr(PrecisionTrial, "gain", recorded)
    return gains


def run(model, material, work, objective=None, **settings):
    with always_tried():
        return train(
            model,
            objective or TaskObjective(material.task),
            material.train,
            Training(**{**SETTINGS, **settings}),
            seed=0,
            work=work,
            evaluate=material.evaluate,
        )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", GAIN_FOR)
def test_a_trial_changes_nothing_of_a_training(
    precision, threads, tiny_model, material, tmp_path, trials, monkeypatch, same_weights
):
    torch.set_num_threads(threads)
    monkeypatch.setattr(module, "BF16_GAIN", GAIN_FOR[precision])
    tried, given = tiny_model("bert"), tiny_model("bert")
    result = run(tried, material, tmp_path / "tried", precision="auto", unfreeze=0.5)
    assert (result.precision, len(trials)) == (precision, 1)
    assert 0.01 < trials[0] < 100
    expected = run(given, material, tmp_path / "given", precision=precision, unfreeze=0.5)
    assert same_weights(tried, given)
    assert result.history == expected.history
    assert result.precision_reason == f"updates {trials[0]:.2f} times as fast in bf16, 6 of each precision tried"
    assert expected.precision_reason is None


@pytest.mark.parametrize("precision", GAIN_FOR)
def test_a_trial_changes_nothing_of_a_distillation(
    precision, tiny_model, tiny_tokenizer, tiny_task, rows, tmp_path, trials, monkeypatch, same_weights
):
    """Projections are trained with the student, and the teacher's outputs are cached."""
    monkeypatch.setattr(module, "BF16_GAIN", GAIN_FOR[precision])
    losses = {"soft_label": 1.0, "hidden_state": 1.0, "attention": 1.0}
    teacher = tiny_model("bert", hidden_dropout_prob=0.0)
    weights = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    students = []
    for chosen in ("auto", precision):
        student = tiny_model("bert", hidden_size=16, num_hidden_layers=1)
        settings = Distill(**SETTINGS, **losses, precision=chosen)
        with always_tried():
            data = (tiny_tokenizer, rows(48), rows(8), tiny_task)
            students.append(distill_from_model(teacher, student, *data, settings, work=tmp_path / chosen))
    assert len(trials) == 1
    assert same_weights(*students)
    assert all(torch.equal(weights[name], tensor) for name, tensor in teacher.state_dict().items())


def test_the_teacher_cache_is_not_used(tiny_model, tiny_tokenizer, tiny_task, rows, tmp_path, monkeypatch):
    """Files that a trial wrote would hold outputs of another precision."""
    gain, files = PrecisionTrial.gain, []

    def listed(self, updates):
        result = gain(self, updates)
        files.append([path.name for path in (tmp_path / "work").rglob("teacher-*")])
        return result

    monkeypatch.setattr(PrecisionTrial, "gain", listed)
    settings = Distill(**SETTINGS, soft_label=1.0)
    data = (tiny_tokenizer, rows(48), rows(8), tiny_task)
    with always_tried():
        distill_from_model(tiny_model("bert"), tiny_model("bert"), *data, settings, work=tmp_path / "work")
    assert files == [[]]


def test_the_next_training_takes_the_kept_choice(tiny_model, material, tmp_path, monkeypatch, same_weights, cache):
    monkeypatch.setattr(PrecisionTrial, "gain", lambda trial, updates: 2.0)
    first, second = tiny_model("bert"), tiny_model("bert")
    expected = run(first, material, tmp_path / "first")
    monkeypatch.setattr(PrecisionTrial, "gain", lambda trial, updates: 1 / 0)
    result = run(second, material, tmp_path / "second")
    assert same_weights(first, second)
    assert (result.precision, result.precision_reason) == ("bf16", expected.precision_reason)
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize(("epochs", "expected"), [(2, 0), (40, 4), (39, 0), (60, 6), (600, 6)])
def test_a_trial_is_a_small_part_of_a_training(epochs, expected, tiny_model, material, tmp_path, monkeypatch):
    """Four updates an epoch: 40 epochs are 160 updates, of which both precisions try eight."""
    counts = []

    def chosen(requested, device, trial):
        counts.append(trial.updates())
        raise InterruptedError

    monkeypatch.setattr("compress.train.loop.choose_precision", chosen)
    settings = Training(epochs=epochs, batch_size=16, learning_rate=1e-3)
    with pytest.raises(InterruptedError):
        train(tiny_model("bert"), TaskObjective(material.task), material.train, settings, seed=0, work=tmp_path)
    assert counts == [expected]


class Killed(TaskObjective):
    """Ends the training at its third update."""

    def begin(self, progress, update=0):
        if update == 2:
            raise InterruptedError


def test_a_resumed_training_keeps_its_precision(tiny_model, material, tmp_path, monkeypatch):
    settings = {"precision": "auto", "checkpoint": Checkpoints(steps=1)}
    for precision in ("bf16", "fp32"):
        choice = PrecisionChoice(precision=precision, reason=f"{precision} was faster")
        monkeypatch.setattr("compress.train.loop.choose_precision", lambda *arguments, choice=choice: choice)
        if precision == "bf16":
            with pytest.raises(InterruptedError):
                run(tiny_model("bert"), material, tmp_path, Killed(material.task), **settings)
    result = run(tiny_model("bert"), material, tmp_path, **settings)
    assert (result.precision, result.precision_reason) == ("bf16", "bf16 was faster")


def test_threads_of_a_trial_end_with_it(tiny_model, material, tmp_path, monkeypatch):
    torch.set_num_threads(2)
    started = []
    monkeypatch.setattr(ShareThreads, "started", _recorded(ShareThreads.started, started))
    run(tiny_model("bert"), material, tmp_path)
    assert len(started) == 5  # four turns, and the training itself
    assert all(threads._pool is None for threads in started)
    assert torch.get_num_threads() == 2


def _recorded(method, seen):
    def call(self):
        seen.append(self)
        return method(self)

    return call
