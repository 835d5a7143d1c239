import itertools

import pytest
import torch

from compress.losses.distillation.attention import _greedy_assignment, match_heads
from tests.losses.helpers import drawn
from tests.losses.layers import HEADS, batch_of, kl, over_maps, squares, states, value

DISTANCES = {"kl": kl, "scores": squares}


def sides(parts):
    return parts["query"], parts["key"]


@pytest.mark.parametrize("form", DISTANCES)
def test_equal_head_counts_pair_by_index(form):
    ours, theirs = states(), states(seed=9)
    expected = over_maps(sides(ours), sides(theirs), DISTANCES[form])
    assert value("attention", ours, theirs, batch_of(), form=form).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("form", DISTANCES)
def test_heads_may_differ_in_size(form):
    ours, theirs = states(size=4), states(seed=9)
    expected = over_maps(sides(ours), sides(theirs), DISTANCES[form])
    assert value("attention", ours, theirs, batch_of(), form=form).item() == pytest.approx(expected, rel=1e-5)


def only(parts, heads):
    return {name: each if name == "hidden" else each[:, heads] for name, each in parts.items()}


def shaken(parts, much=0.1):
    return {name: each + much * drawn(*each.shape, seed=50) for name, each in parts.items()}


@pytest.mark.parametrize("form", DISTANCES)
def test_pruned_student_heads_match_their_originals(form):
    teacher, layers = states(), [3, 1]
    student = shaken(only(teacher, layers))
    expected = over_maps(sides(student), sides(only(teacher, layers)), DISTANCES[form])
    result = value("attention", student, teacher, batch_of(), form=form)
    assert result.item() == pytest.approx(expected, rel=1e-5)
    assert value("attention", only(teacher, layers), teacher, batch_of(), form=form).item() < 1e-6


def test_fewer_teacher_heads_are_shared_evenly():
    student = states()
    teacher = shaken(only(student, [2]))
    result = value("attention", student, teacher, batch_of())
    expected = over_maps(sides(student), sides(only(teacher, [0] * HEADS)), kl)
    assert result.item() == pytest.approx(expected, rel=1e-5)


def test_heads_are_matched_by_the_divergence_of_their_maps():
    ours, theirs = states(heads=3), states(seed=9)
    pairs = [
        (over_maps(sides(only(ours, [a])), sides(only(theirs, [b])), kl), a, b)
        for a, b in itertools.product(range(3), range(HEADS))
    ]
    expected = {}
    for _, a, b in sorted(pairs):
        if a not in expected and b not in expected.values():
            expected[a] = b
    result = match_heads(*sides(ours), *sides(theirs), batch_of())
    assert result.tolist() == [expected[head] for head in range(3)]


def test_padding_does_not_change_head_matching():
    ours, theirs = states(heads=3), states(seed=9)
    wide = [{k: torch.nn.functional.pad(v, (0, 0, 0, 4), value=5.0) for k, v in one.items()} for one in (ours, theirs)]
    result = match_heads(*sides(wide[0]), *sides(wide[1]), batch_of(tokens=9))
    assert torch.equal(result, match_heads(*sides(ours), *sides(theirs), batch_of()))


def test_heads_are_not_reused_while_others_are_unused():
    apart = torch.tensor([[0.0, 1.0, 9.0], [0.1, 2.0, 9.0]])
    assert _greedy_assignment(apart) == [0, 1]
    apart = torch.tensor([[0.0, 5.0], [0.1, 6.0], [0.2, 9.0], [8.0, 7.0]])
    assert _greedy_assignment(apart) == [0, 0, 1, 1]
    apart = torch.tensor([[0.0, 1.0, 9.0], [0.1, 1.0, 9.0], [5.0, 0.2, 9.0], [5.0, 0.3, 9.0]])
    assert _greedy_assignment(apart) == [0, 0, 1, 2]


def test_a_matched_loss_has_the_gradient_of_finite_differences():
    ours = states(examples=2, tokens=3, heads=2, size=3, dtype=torch.float64)
    theirs = states(9, examples=2, tokens=3, size=2, dtype=torch.float64)

    def loss(query, key):
        return value("attention", {"query": query, "key": key}, theirs, batch_of([3, 2], tokens=3))

    assert torch.autograd.gradcheck(loss, [ours[name].clone().requires_grad_() for name in ("query", "key")])
