"""The statistics of probes on vectors whose answers are known."""

from pathlib import Path

import numpy as np
import pytest
import torch

from compress.errors import DataError
from compress.probe.head_patterns import BROAD, _geometry, pattern_of
from compress.probe.linear_probes import probe_layers
from compress.probe.probe_items import ProbeTask, check_varied
from compress.probe.probe_scores import _ranks, score_of, task_scores
from compress.probe.states import States


def _states(folder: Path, layers: list[np.ndarray]) -> States:
    count, width = layers[0].shape
    names = ("embeddings", *map(str, range(len(layers) - 1)))
    states = States("made", names, width, folder, count, np.ones(count, dtype=np.bool_))
    for number, values in enumerate(layers):
        for what in ("texts", "words"):
            states.file(what, number, "w+")[:] = values  # type: ignore[arg-type]
    return states


def _task(targets: np.ndarray, answers: str = "classes", reads: str = "text", words: tuple[str, ...] = ()) -> ProbeTask:
    count = len(targets)
    return ProbeTask(
        name="made",
        reads=reads,  # type: ignore[arg-type]
        answers=answers,  # type: ignore[arg-type]
        classes=("a", "b") if answers != "number" else (),
        items=np.arange(count).reshape(-1, 1),
        targets=targets,
        groups=np.arange(count) // 2,
        held_out=np.arange(count) >= count * 2 // 3,
        words=words,
    )


def _every(task: ProbeTask) -> np.ndarray:
    return np.ones(len(task.items), dtype=np.bool_)


def test_the_layer_that_holds_the_answer_is_best_and_shortest(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    noise, known = random.normal(size=(900, 8)), random.normal(size=(900, 8))
    targets = (known[:, 0] > 0).astype(np.int64)
    task = _task(targets)
    scores = task_scores("made", probe_layers(task, _states(tmp_path, [noise, known]), _every(task), 0), 0)
    by_name = {each.layer: each for each in scores.layers}
    assert scores.best == "0"
    assert scores.best_between == ("0", "0")
    assert by_name["0"].score.value > 0.95
    assert by_name["embeddings"].score.value < 0.65
    assert by_name["0"].compression > 3
    assert by_name["embeddings"].compression < 1.1
    assert by_name["0"].weight > 0.8  # type: ignore[operator]
    assert "embeddings" not in scores.equal


def test_numbers_are_scored_by_rank(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    known = random.normal(size=(600, 4))
    task = _task((known[:, 1] ** 3 + known[:, 1]).astype(np.float32), "number")
    scores = task_scores(
        "made", probe_layers(task, _states(tmp_path, [known, known + random.normal(size=(600, 4))]), _every(task), 0), 0
    )
    assert all(each.compression is None for each in scores.layers)
    assert scores.best == "embeddings"
    assert scores.layers[0].score.value > 0.9


def test_spearman_agrees_with_scipy() -> None:
    from scipy.stats import spearmanr

    random = np.random.default_rng(1)
    one, other = random.integers(0, 9, 50).astype(float), random.normal(size=50)
    x, y = _ranks(torch.tensor(one)).numpy(), _ranks(torch.tensor(other)).numpy()
    sums = np.array([50, x.sum(), y.sum(), (x * x).sum(), (y * y).sum(), (x * y).sum()])
    assert score_of(_task(one.astype(np.float32), "number"), sums) == pytest.approx(spearmanr(one, other).statistic)


def test_control_tasks_separate_memory_from_knowledge(tmp_path: Path) -> None:
    """Vectors that only say which word it is solve the control as well as the task; one class direction does not."""
    random = np.random.default_rng(0)
    words = random.integers(0, 40, 3000)
    targets = (words % 2).astype(np.int64)
    identity, direction = (
        np.eye(40)[words],
        np.tile((words % 2)[:, None], (1, 40)) + 0.1 * random.normal(size=(3000, 40)),
    )
    task = _task(targets, reads="word", words=tuple(map(str, words)))
    scores = task_scores("made", probe_layers(task, _states(tmp_path, [identity, direction]), _every(task), 0), 0)
    memory, knowledge = scores.layers[0], scores.layers[1]
    assert memory.score.value > 0.99
    assert knowledge.score.value > 0.99
    assert memory.selectivity < 0.05 < 0.3 < knowledge.selectivity  # type: ignore[operator]


def test_one_class_is_refused() -> None:
    with pytest.raises(DataError, match="every item of train is labelled a"):
        check_varied(_task(np.zeros(30, dtype=np.int64)))


def test_geometry_of_known_shapes() -> None:
    draws = torch.Generator().manual_seed(0)
    plane = torch.zeros(1500, 20)
    plane[:, :3] = torch.rand(1500, 3, generator=draws) - 0.5
    found = _geometry(plane)
    assert found.dimension == pytest.approx(3, rel=0.15)
    assert abs(found.anisotropy) < 0.02
    assert _geometry(torch.ones(50, 4)).dimension is None
    assert _geometry(torch.rand(500, 8, generator=draws) + 10).anisotropy > 0.95


def test_a_head_has_the_pattern_that_it_spends_most_on() -> None:
    assert pattern_of(np.array([0.1, 0.1, 0.6, 0.1, 0.0, 0.0])) == "previous word"
    assert pattern_of(np.full(6, 0.1)) == BROAD


def test_rising_layers_are_those_that_add_most(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    known = random.normal(size=(900, 8))
    targets = (known[:, 0] > 0).astype(np.int64)
    layers = [random.normal(size=(900, 8)), 0.3 * known + random.normal(size=(900, 8)), known, known]
    task = _task(targets)
    scores = task_scores("made", probe_layers(task, _states(tmp_path, layers), _every(task), 0), 0)
    assert scores.rising_layers(2) == (0, 1)
    with pytest.raises(ValueError, match="cannot be chosen"):
        scores.rising_layers(4)


def test_a_mix_takes_both_layers_that_hold_a_part_of_the_answer(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    one, other, noise = (random.normal(size=(1500, 8)) for _ in range(3))
    one[:, 4:] = other[:, :4] = 0
    task = _task((one[:, 0] + other[:, 5] > 0).astype(np.int64))
    states = _states(tmp_path, [noise, one, other])
    scores = task_scores("made", probe_layers(task, states, _every(task), 0), 0)
    weights = [each.weight or 0 for each in scores.layers[:3]]
    assert min(weights[1:]) > 0.2 > weights[0]
    assert scores.layers[-1].score.value > max(each.score.value for each in scores.layers[:3]) + 0.05
