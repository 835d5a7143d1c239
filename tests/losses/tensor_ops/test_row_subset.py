"""Losses on some rows, against the same rows alone."""

import pytest
import torch

from compress.losses.tensor_ops.row_groups import RowGroups, loss_on_subset


def mean(outputs, batch):
    """Mean over rows of the mean over each row's examples."""
    groups = RowGroups.from_batch(batch)
    return groups.mean(outputs["logits"].squeeze(-1) * batch["labels"]).mean()


def batch_of(group=None):
    ids = torch.zeros(5, 3, dtype=torch.int64)
    batch = {"input_ids": ids, "labels": torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])}
    return batch if group is None else {**batch, "group": torch.tensor(group)}


OUTPUTS = {"logits": torch.tensor([[1.0], [10.0], [100.0], [1000.0], [10000.0]], requires_grad=True)}


def test_unselected_rows_count_as_zero_loss():
    chosen = torch.tensor([True, False, True, False, False])
    assert loss_on_subset(chosen, OUTPUTS, batch_of(), mean).item() == pytest.approx((1 + 300) / 5)


def test_rows_of_several_examples_are_renumbered():
    """Rows of 2, 1 and 2 examples, of which the first and the last count."""
    chosen = torch.tensor([True, True, False, True, True])
    result = loss_on_subset(chosen, OUTPUTS, batch_of([0, 0, 1, 2, 2]), mean)
    assert result.item() == pytest.approx(((1 + 20) / 2 + (4000 + 50000) / 2) / 3)


def test_selecting_all_rows_equals_the_loss():
    assert loss_on_subset(torch.ones(5, dtype=torch.bool), OUTPUTS, batch_of(), mean) == mean(OUTPUTS, batch_of())


def test_selecting_no_row_gives_zero_gradients():
    broken = {"logits": torch.full((5, 1), torch.nan, requires_grad=True)}
    loss = loss_on_subset(torch.zeros(5, dtype=torch.bool), broken, batch_of(), mean)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(broken["logits"].grad, torch.zeros(5, 1))


def test_subset_loss_is_independent_of_batch_split():
    chosen = torch.tensor([True, False, False, True, True])
    whole = loss_on_subset(chosen, OUTPUTS, batch_of(), mean)
    parts = []
    for rows in (slice(0, 3), slice(3, 5)):
        some = {name: tensor[rows] for name, tensor in batch_of().items()}
        part = loss_on_subset(chosen[rows], {"logits": OUTPUTS["logits"][rows]}, some, mean)
        parts.append(part * len(some["labels"]) / 5)
    assert sum(parts).item() == pytest.approx(whole.item())
