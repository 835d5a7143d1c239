import math

import pytest
import torch

from compress.losses.distillation.soft_label import soft_label
from compress.losses.tensor_ops.soft_targets import logits_from_probabilities
from compress.recipe.loss_schema import SoftLabel
from tests.losses.helpers import OUTPUTS, drawn, grouped, pieces, task

GIVEN = [[0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]
COUNTS = [2, 1, 3]


def followed(ours, problem="single_label_classification", rows=GIVEN, about=None, **options):
    about, batch = about or task(), pieces(len(ours), 2)
    theirs = logits_from_probabilities(torch.tensor(rows), about.long, OUTPUTS[problem])
    return soft_label({"logits": ours}, theirs, batch, about.long, OUTPUTS[problem], SoftLabel(**options))


def by_hand(ours, given, temperature):
    odds = [math.exp(value / temperature) for value in ours]
    softened = [p ** (1 / temperature) for p in given]
    total = 0.0
    for odd, p in zip(odds, softened, strict=True):
        a, b = p / sum(softened), odd / sum(odds)
        total += a * math.log(a / b) if a else 0.0
    return temperature**2 * total


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_probabilities_equal_their_logits(temperature):
    ours = drawn(3, 3).requires_grad_()
    loss = followed(ours, temperature=temperature)
    loss.backward()
    expected = [by_hand(row, given, temperature) for row, given in zip(ours.tolist(), GIVEN, strict=True)]
    assert loss.item() == pytest.approx(sum(expected) / 3, rel=1e-5)
    assert ours.grad.isfinite().all()


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_multi_label_probabilities_become_binary_logits(temperature):
    rows = [[0.7, 0.0], [1.0, 0.25]]
    ours = drawn(2, 2).requires_grad_()
    loss = followed(ours, "multi_label_classification", rows, temperature=temperature)
    loss.backward()
    expected = []
    for line, given in zip(ours.tolist(), rows, strict=True):
        for value, p in zip(line, given, strict=True):
            a, b = p ** (1 / temperature), (1 - p) ** (1 / temperature)
            chance = 1 / (1 + math.exp(-value / temperature))
            pairs = ((a / (a + b), chance), (b / (a + b), 1 - chance))
            expected.append(temperature**2 * sum(x * math.log(x / y) for x, y in pairs if x))
    assert loss.item() == pytest.approx(sum(expected) / 4, rel=1e-5)
    assert ours.grad.isfinite().all()


@pytest.mark.parametrize("form", ["kl", "mse", "decoupled"])
@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
def test_probabilities_of_zero_give_finite_loss(form, problem):
    ours = drawn(3, 3).requires_grad_()
    loss = followed(ours, problem, form=form)
    loss.backward()
    assert loss.isfinite()
    assert ours.grad.isfinite().all()
    assert ours.grad.any()


@pytest.mark.parametrize("long", ["mean", "max", "attention"])
def test_windows_of_a_row_share_its_probabilities(long):
    form = OUTPUTS["single_label_classification"]
    about, batch = task(long=long), {**pieces(6, 2), "group": grouped(COUNTS)}
    rows = torch.tensor(GIVEN).repeat_interleave(torch.tensor(COUNTS), dim=0)
    theirs = logits_from_probabilities(rows, about.long, form)
    student = drawn(3, 3).repeat_interleave(torch.tensor(COUNTS), dim=0)
    if long == "attention":
        student = torch.nn.functional.pad(student, (0, 1))
    result = soft_label({"logits": student}, theirs, batch, about.long, form, SoftLabel())
    assert result.item() == pytest.approx(followed(drawn(3, 3)).item(), rel=1e-5)
