import inspect
import math

import pytest
import torch

from compress.losses import LOSSES, AnswerLoss
from compress.losses.attention import attention
from compress.losses.hidden_state import hidden_state
from compress.losses.soft_label import soft_label

ROWS, TOKENS, WIDTH, HEADS, SIZE = 3, 5, 8, 4, 6
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def attention_states(heads=HEADS, seed=0):
    return {name: drawn(ROWS, heads, TOKENS, SIZE, seed=seed + place) for place, name in enumerate(("query", "key"))}


def test_soft_label_is_the_divergence_times_the_squared_temperature():
    student, teacher, temperature = drawn(ROWS, 4), drawn(ROWS, 4, seed=1), 3.0
    total = 0.0
    for row in range(ROWS):
        wanted = [math.exp(value / temperature) for value in teacher[row].tolist()]
        given = [math.exp(value / temperature) for value in student[row].tolist()]
        wanted, given = [value / sum(wanted) for value in wanted], [value / sum(given) for value in given]
        total += sum(p * math.log(p / q) for p, q in zip(wanted, given, strict=True))
    expected = temperature**2 * total / ROWS
    assert soft_label(student, teacher, temperature).item() == pytest.approx(expected, rel=1e-4)


def test_soft_labels_of_several_classes_at_once_compare_each_class():
    student, teacher, temperature = drawn(ROWS, 4), drawn(ROWS, 4, seed=1), 2.0
    total = 0.0
    for ours, theirs in zip(student.flatten().tolist(), teacher.flatten().tolist(), strict=True):
        p, q = 1 / (1 + math.exp(-theirs / temperature)), 1 / (1 + math.exp(-ours / temperature))
        total += p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    found = soft_label(student, teacher, temperature, "multi_label_classification").item()
    assert found == pytest.approx(temperature**2 * total / student.numel(), rel=1e-4)


def test_soft_labels_of_regression_are_squared_errors():
    student, teacher = drawn(ROWS, 1), drawn(ROWS, 1, seed=1)
    expected = sum((a - b) ** 2 for a, b in zip(student.flatten().tolist(), teacher.flatten().tolist(), strict=True))
    assert soft_label(student, teacher, 4.0, "regression").item() == pytest.approx(expected / ROWS, rel=1e-5)


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", "regression"])
def test_equal_answers_cost_nothing(problem):
    logits = 10 * drawn(ROWS, 4)
    assert soft_label(logits, logits, 2.0, problem).item() == pytest.approx(0.0, abs=1e-5)


def test_soft_label_refuses_what_it_cannot_compare():
    with pytest.raises(ValueError, match="differ"):
        soft_label(drawn(3, 4), drawn(3, 2))
    with pytest.raises(ValueError, match="ranking"):
        soft_label(drawn(3, 4), drawn(3, 4), problem="ranking")


def test_hidden_states_are_compared_at_real_tokens():
    student, teacher = drawn(ROWS, TOKENS, WIDTH), drawn(ROWS, TOKENS, WIDTH, seed=1)
    rows = []
    for row in range(ROWS):
        real = [token for token in range(TOKENS) if MASK[row, token]]
        rows.append(sum(((student[row, t] - teacher[row, t]) ** 2).mean().item() for t in real) / len(real))
    found = hidden_state({"hidden": student}, {"hidden": teacher}, MASK).item()
    assert found == pytest.approx(sum(rows) / ROWS, rel=1e-5)


def test_hidden_states_of_different_widths_ask_for_a_projection():
    with pytest.raises(ValueError, match="project"):
        hidden_state({"hidden": drawn(1, 2, 3)}, {"hidden": drawn(1, 2, 4)}, torch.ones(1, 2))


def maps(states, row, head):
    """The attention map of one row and head over its real tokens, by plain sums."""
    real = [token for token in range(TOKENS) if MASK[row, token]]
    lines = []
    for query in real:
        scores = [
            sum((states["query"][row, head, query] * states["key"][row, head, key]).tolist()) / math.sqrt(SIZE)
            for key in real
        ]
        total = sum(math.exp(score) for score in scores)
        lines.append([math.exp(score) / total for score in scores])
    return lines


def divergence(theirs, ours):
    return sum(
        p * math.log(p / q)
        for wanted, given in zip(theirs, ours, strict=True)
        for p, q in zip(wanted, given, strict=True)
    ) / len(theirs)


def test_attention_is_the_divergence_of_maps_over_real_tokens():
    student, teacher = attention_states(), attention_states(seed=5)
    expected = 0.0
    for row in range(ROWS):
        heads = [divergence(maps(teacher, row, head), maps(student, row, head)) for head in range(HEADS)]
        expected += sum(heads) / HEADS / ROWS
    assert attention(student, teacher, MASK).item() == pytest.approx(expected, rel=1e-4)


def test_attention_of_different_numbers_of_heads_compares_their_averages():
    student, teacher = attention_states(heads=2), attention_states(seed=5)

    def average(states, row, heads):
        found = torch.tensor([maps(states, row, head) for head in range(heads)], dtype=torch.float64)
        return found.mean(dim=0).tolist()

    expected = sum(divergence(average(teacher, row, HEADS), average(student, row, 2)) for row in range(ROWS)) / ROWS
    assert attention(student, teacher, MASK).item() == pytest.approx(expected, rel=1e-4)


def compared(name, rows=slice(None), padding=0, seed=0):
    """The value of a loss on random states; with more padding where asked."""
    loss = LOSSES[name]
    if isinstance(loss, AnswerLoss):
        return loss.function(drawn(ROWS, 4, seed=seed)[rows], drawn(ROWS, 4, seed=seed + 9)[rows], 2.0, "regression")
    mask = torch.nn.functional.pad(MASK, (0, padding))[rows]
    states = []
    for start in (seed, seed + 9):
        hidden = {"hidden": drawn(ROWS, TOKENS, WIDTH, seed=start)}
        padded = {k: torch.nn.functional.pad(v, (0, 0, 0, padding), value=3.0) for k, v in hidden.items()}
        heads = {
            k: torch.nn.functional.pad(v, (0, 0, 0, padding), value=3.0)
            for k, v in attention_states(seed=start).items()
        }
        states.append({k: v[rows] for k, v in (padded | heads).items() if k in loss.needs})
    return loss.function(states[0], states[1], mask)


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if not isinstance(loss, AnswerLoss)])
def test_padding_never_counts(name):
    assert compared(name, padding=4).item() == pytest.approx(compared(name).item(), rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_a_batch_may_be_split_anywhere(name):
    parts = [compared(name, rows=slice(row, row + 1)).item() for row in range(ROWS)]
    assert compared(name).item() == pytest.approx(sum(parts) / ROWS, rel=1e-5)


@pytest.mark.parametrize("heads", [HEADS, 2])
def test_the_gradient_of_attention_is_its_slope(heads):
    states = attention_states(heads)
    slope_of(lambda query: attention({**states, "query": query}, attention_states(seed=5), MASK), states["query"])


def test_the_gradient_of_hidden_states_is_their_slope():
    teacher = {"hidden": drawn(ROWS, TOKENS, WIDTH, seed=1)}
    slope_of(lambda hidden: hidden_state({"hidden": hidden}, teacher, MASK), drawn(ROWS, TOKENS, WIDTH))


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", "regression"])
def test_the_gradient_of_soft_labels_is_their_slope(problem):
    slope_of(lambda logits: soft_label(logits, drawn(ROWS, 4, seed=1), 2.0, problem), drawn(ROWS, 4))


def slope_of(function, start):
    """Compare the gradient with finite differences along random directions (the losses work in fp32)."""
    at = start.clone().requires_grad_(True)
    function(at).backward()
    for seed in range(3):
        direction = drawn(*start.shape, seed=100 + seed)
        step = 1e-2 / direction.norm()
        rise = (function(start + step * direction) - function(start - step * direction)).item() / (2 * step.item())
        assert (at.grad * direction).sum().item() == pytest.approx(rise, rel=2e-2, abs=2e-3)


def test_every_loss_is_named_after_its_file():
    for name, loss in LOSSES.items():
        assert loss.function.__name__ == name
        assert inspect.getmodule(loss.function).__name__ == f"compress.losses.{name}"
