import math
from itertools import permutations

import pytest
import torch

from compress.losses.distillation import similarity as module
from tests.losses.helpers import drawn
from tests.losses.layers import LENGTHS, batch_of, dot, mean, states, value

TEXTS = 6
FULL = [5, 3, 1, 4, 5, 2]


def huber(x):
    return x * x / 2 if abs(x) <= 1 else abs(x) - 0.5


def minus(a, b):
    return [x - y for x, y in zip(a, b, strict=True)]


def length(a):
    return math.sqrt(dot(a, a))


def vectors(parts, pool, lengths=FULL):
    rows = parts["hidden"].double().tolist()
    if pool == "cls":
        return [row[0] for row in rows]
    return [[mean(each) for each in zip(*row[:count], strict=True)] for row, count in zip(rows, lengths, strict=True)]


def distances(texts):
    result = {(i, j): length(minus(texts[i], texts[j])) for i, j in permutations(range(len(texts)), 2)}
    return {pair: each / mean(list(result.values())) for pair, each in result.items()}


def angles(texts):
    result = {}
    for i, j, k in permutations(range(len(texts)), 3):
        a, b = minus(texts[i], texts[j]), minus(texts[k], texts[j])
        result[i, j, k] = dot(a, b) / length(a) / length(b) if length(a) * length(b) else 0.0
    return result


def apart(kind, ours, theirs):
    given, wanted = kind(ours), kind(theirs)
    return mean([huber(given[index] - wanted[index]) for index in given])


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("width", [8, 3])
def test_it_is_the_difference_of_distances_and_angles(pool, width):
    ours, theirs = states(examples=TEXTS, width=width), states(seed=9, examples=TEXTS)
    both = vectors(ours, pool), vectors(theirs, pool)
    expected = 1.5 * apart(distances, *both) + 0.5 * apart(angles, *both)
    result = value("similarity", ours, theirs, batch_of(FULL), pool=pool, distance=1.5, angle=0.5)
    assert result.item() == pytest.approx(expected, rel=1e-4)


def test_default_weights_are_one_and_two():
    ours, theirs = states(examples=TEXTS), states(seed=9, examples=TEXTS)
    both = vectors(ours, "cls"), vectors(theirs, "cls")
    expected = apart(distances, *both) + 2 * apart(angles, *both)
    assert value("similarity", ours, theirs, batch_of(FULL)).item() == pytest.approx(expected, rel=1e-4)


def test_chunked_angles_equal_unchunked(monkeypatch):
    ours, theirs = states(examples=TEXTS), states(seed=9, examples=TEXTS)
    result = []
    for at_once in (1 << 22, 2 * TEXTS**2, 1):
        monkeypatch.setitem(module.MAX_ELEMENTS, "cpu", at_once)
        at = ours["hidden"].clone().requires_grad_()
        loss = value("similarity", {"hidden": at}, theirs, batch_of(FULL))
        loss.backward()
        result.append((loss.item(), at.grad))
    for loss, slope in result[1:]:
        assert loss == pytest.approx(result[0][0], rel=1e-5)
        assert torch.allclose(slope, result[0][1], atol=1e-6)


def test_rotation_scaling_and_translation_do_not_change_loss():
    theirs = states(examples=TEXTS)
    turn = torch.linalg.qr(drawn(8, 8, seed=3)).Q
    ours = {"hidden": 0.1 * theirs["hidden"] @ turn + 20.0}
    assert value("similarity", ours, theirs, batch_of(FULL)).item() == pytest.approx(0.0, abs=1e-5)


def test_coincident_texts_have_no_angle():
    ours, theirs = states(examples=TEXTS), states(seed=9, examples=TEXTS)
    for parts in (ours, theirs):
        parts["hidden"][4] = parts["hidden"][1]
    both = vectors(ours, "cls"), vectors(theirs, "cls")
    expected = apart(distances, *both) + 2 * apart(angles, *both)
    at = ours["hidden"].requires_grad_()
    loss = value("similarity", ours, theirs, batch_of(FULL))
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert at.grad.abs().max() < 1


def test_two_texts_have_a_distance_that_is_the_mean_and_no_angle():
    result = value("similarity", states(examples=2), states(seed=9, examples=2), batch_of(LENGTHS[:2]))
    assert result.item() == pytest.approx(0.0, abs=1e-6)
