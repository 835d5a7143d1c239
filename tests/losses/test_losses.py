import inspect
import math

import pytest
import torch

from compress.losses import LOSSES, TASK_LOSSES, LayerLoss
from compress.losses.attention import attention
from compress.losses.hidden_state import hidden_state
from tests.losses.helpers import drawn, slope_of

ROWS, TOKENS, WIDTH, HEADS, SIZE = 3, 5, 8, 4, 6
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
BATCH = {"input_ids": MASK, "attention_mask": MASK}
LAYER_LOSSES = [name for name, loss in LOSSES.items() if isinstance(loss, LayerLoss)]


def attention_states(heads=HEADS, seed=0):
    return {name: drawn(ROWS, heads, TOKENS, SIZE, seed=seed + place) for place, name in enumerate(("query", "key"))}


def test_hidden_states_are_compared_at_real_tokens():
    student, teacher = drawn(ROWS, TOKENS, WIDTH), drawn(ROWS, TOKENS, WIDTH, seed=1)
    rows = []
    for row in range(ROWS):
        real = [token for token in range(TOKENS) if MASK[row, token]]
        rows.append(sum(((student[row, t] - teacher[row, t]) ** 2).mean().item() for t in real) / len(real))
    found = hidden_state({"hidden": student}, {"hidden": teacher}, BATCH).item()
    assert found == pytest.approx(sum(rows) / ROWS, rel=1e-5)


def test_hidden_states_of_different_widths_ask_for_a_projection():
    with pytest.raises(ValueError, match="project"):
        hidden_state({"hidden": drawn(1, 2, 3)}, {"hidden": drawn(1, 2, 4)}, BATCH)


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
    assert attention(student, teacher, BATCH).item() == pytest.approx(expected, rel=1e-4)


def test_attention_of_different_numbers_of_heads_compares_their_averages():
    student, teacher = attention_states(heads=2), attention_states(seed=5)

    def average(states, row, heads):
        found = torch.tensor([maps(states, row, head) for head in range(heads)], dtype=torch.float64)
        return found.mean(dim=0).tolist()

    expected = sum(divergence(average(teacher, row, HEADS), average(student, row, 2)) for row in range(ROWS)) / ROWS
    assert attention(student, teacher, BATCH).item() == pytest.approx(expected, rel=1e-4)


def compared(name, rows=slice(None), padding=0, seed=0, group=None):
    """The value of a layer loss on random states; with more padding where asked."""
    loss = LOSSES[name]
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
    batch = {"input_ids": mask, "attention_mask": mask}
    return loss.function(states[0], states[1], batch if group is None else {**batch, "group": group})


@pytest.mark.parametrize("name", LAYER_LOSSES)
def test_padding_never_counts(name):
    assert compared(name, padding=4).item() == pytest.approx(compared(name).item(), rel=1e-5)


@pytest.mark.parametrize("name", LAYER_LOSSES)
def test_a_batch_may_be_split_anywhere(name):
    parts = [compared(name, rows=slice(row, row + 1)).item() for row in range(ROWS)]
    assert compared(name).item() == pytest.approx(sum(parts) / ROWS, rel=1e-5)


@pytest.mark.parametrize("name", LAYER_LOSSES)
def test_rows_weigh_the_same_however_many_examples_they_have(name):
    alone = [compared(name, rows=slice(row, row + 1)).item() for row in range(ROWS)]
    lengths = MASK.sum(dim=1).tolist()
    # The first two examples are one row, whose tokens count alike.
    first = (alone[0] * lengths[0] + alone[1] * lengths[1]) / (lengths[0] + lengths[1])
    found = compared(name, group=torch.tensor([0, 0, 1]))
    assert found.item() == pytest.approx((first + alone[2]) / 2, rel=1e-5)


@pytest.mark.parametrize("heads", [HEADS, 2])
def test_the_gradient_of_attention_is_its_slope(heads):
    states = attention_states(heads)
    slope_of(lambda query: attention({**states, "query": query}, attention_states(seed=5), BATCH), states["query"])


def test_the_gradient_of_hidden_states_is_their_slope():
    teacher = {"hidden": drawn(ROWS, TOKENS, WIDTH, seed=1)}
    slope_of(lambda hidden: hidden_state({"hidden": hidden}, teacher, BATCH), drawn(ROWS, TOKENS, WIDTH))


def test_every_loss_is_named_after_its_file():
    for name, loss in LOSSES.items():
        assert loss.function.__name__ == name
    for loss in (*LOSSES.values(), *TASK_LOSSES.values()):
        assert inspect.getmodule(loss.function).__name__ == f"compress.losses.{loss.function.__name__}"
