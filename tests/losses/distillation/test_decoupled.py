import math

import pytest
import torch

from compress.losses.distillation.decoupled import decoupled_distance, target_classes
from compress.losses.distillation.soft_label import soft_label, softmax_distance
from compress.recipe.loss_schema import SoftLabel
from tests.losses.helpers import OUTPUTS, drawn, grouped, pieces

ROWS, CLASSES, T = 4, 3, 2.0
RIGHT = torch.tensor([2, 0, 1, 1])


def by_hand(ours, theirs, right, target, others):
    """One row, by plain sums."""
    chances = [[math.exp(value / T) for value in each] for each in (theirs, ours)]
    p, q = ([value / sum(each) for value in each] for each in chances)
    first = p[right] * math.log(p[right] / q[right])
    first += (1 - p[right]) * math.log((1 - p[right]) / (1 - q[right]))
    rest = [at for at in range(len(p)) if at != right]
    second = 0.0
    for at in rest:
        a, b = p[at] / (1 - p[right]), q[at] / (1 - q[right])
        second += a * math.log(a / b)
    return T**2 * (target * first + others * second)


@pytest.mark.parametrize(("target", "others"), [(1.0, 8.0), (0.0, 1.0), (2.0, 0.0)])
def test_decoupled_parts_have_separate_weights(target, others):
    ours, theirs = drawn(ROWS, CLASSES), drawn(ROWS, CLASSES, seed=1)
    result = decoupled_distance(ours, theirs, RIGHT, T, target, others)
    expected = [
        by_hand(*row, target, others) for row in zip(ours.tolist(), theirs.tolist(), RIGHT.tolist(), strict=True)
    ]
    assert result.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_decoupled_parts_sum_to_kl():
    ours, theirs = drawn(ROWS, CLASSES), drawn(ROWS, CLASSES, seed=1)
    first, second = (decoupled_distance(ours, theirs, RIGHT, T, *weights) for weights in ((1.0, 0.0), (0.0, 1.0)))
    sure = (theirs / T).softmax(dim=-1).gather(-1, RIGHT[:, None])[:, 0]
    assert torch.allclose(first + (1 - sure) * second, softmax_distance(ours, theirs, T), atol=1e-6)


def test_two_classes_have_no_other_part():
    ours, theirs = drawn(ROWS, 2), drawn(ROWS, 2, seed=1)
    result = decoupled_distance(ours, theirs, RIGHT.clamp(max=1), T, 1.0, 8.0)
    assert torch.allclose(result, softmax_distance(ours, theirs, T), atol=1e-6)


def test_label_is_the_target_class():
    teacher = torch.eye(CLASSES)[[0, 0, 0, 2]]
    batch = {**pieces(ROWS, 2), "labels": RIGHT}
    assert target_classes(teacher, batch).tolist() == RIGHT.tolist()
    batch["labelled"] = torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert target_classes(teacher, batch).tolist() == [2, 0, 0, 2]
    del batch["labels"]
    assert target_classes(teacher, batch).tolist() == [0, 0, 0, 2]


def test_windows_share_the_target_class():
    batch = {**pieces(5, 2), "labels": torch.tensor([2, 2, 0, 1, 1]), "group": grouped([2, 1, 2])}
    batch["labelled"] = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0])
    assert target_classes(torch.eye(3), batch).tolist() == [2, 1, 1]


def test_right_choice_is_the_target_class():
    batch = {**pieces(5, 2), "labels": torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0]), "group": grouped([2, 3])}
    assert target_classes(drawn(2, 3), batch).tolist() == [1, 2]


def test_without_one_right_choice_the_teachers_likeliest_one_is_the_target():
    batch = {**pieces(5, 2), "labels": torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0]), "group": grouped([2, 3])}
    ours, theirs = {"logits": drawn(5, 1)}, {"logits": drawn(5, 1, seed=1)}
    settings = SoftLabel(form="decoupled", temperature=T, target=1.0, others=2.0)
    unlabelled = {name: each for name, each in batch.items() if name != "labels"}
    losses = [soft_label(ours, theirs, each, "cut", OUTPUTS["ranking"], settings) for each in (batch, unlabelled)]
    assert losses[0].item() == losses[1].item()


def test_placeholder_labels_are_ignored():
    ours, theirs = {"logits": drawn(ROWS, CLASSES)}, {"logits": drawn(ROWS, CLASSES, seed=1)}
    settings = SoftLabel(form="decoupled", temperature=T, target=1.0, others=2.0)
    likeliest = theirs["logits"].argmax(dim=-1)
    batch = {**pieces(ROWS, 2), "labels": torch.full((ROWS,), -100), "labelled": torch.zeros(ROWS)}
    result = soft_label(ours, theirs, batch, "cut", OUTPUTS["single_label_classification"], settings)
    expected = decoupled_distance(ours["logits"], theirs["logits"], likeliest, T, 1.0, 2.0).mean()
    assert result.item() == pytest.approx(expected.item(), rel=1e-6)
