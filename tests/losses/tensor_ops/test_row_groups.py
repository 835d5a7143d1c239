import numpy as np
import pytest
import torch

from compress.losses.tensor_ops.logit_views import pool_window_logits
from compress.losses.tensor_ops.row_groups import GroupedBatch, RowGroups
from compress.tasks.decoding import pool_window_logits as pooled_by_numpy
from tests.losses.helpers import drawn, grouped, slope_of

COUNTS = [2, 1, 3]


def rows_of(counts):
    return RowGroups.from_batch({"input_ids": torch.zeros(sum(counts), 1), "group": grouped(counts)})


def test_pad_arranges_examples_by_row():
    groups, values = rows_of(COUNTS), drawn(6, 2)
    assert (groups.num_rows, groups.max_per_row) == (3, 3)
    valid = torch.tensor([[True, True, False], [True, False, False], [True, True, True]])
    padded = groups.pad(values, fill=-7.0)
    assert padded.shape == (3, 3, 2)
    assert torch.equal(padded[valid], values)
    assert (padded[~valid] == -7.0).all()
    assert torch.equal(groups.first(values), values[[0, 2, 3]])


def test_means_are_those_of_each_row():
    groups, values = rows_of(COUNTS), drawn(6, 2)
    expected = [part.mean(dim=0).tolist() for part in values.split(COUNTS)]
    assert groups.mean(values).tolist() == [pytest.approx(line) for line in expected]
    assert groups.mean(values[:, 0]).tolist() == pytest.approx([line[0] for line in expected])


def test_without_groups_each_example_is_a_row():
    groups = RowGroups.from_batch({"input_ids": torch.zeros(4, 2, dtype=torch.int64)})
    assert groups.counts.tolist() == [1, 1, 1, 1]
    assert RowGroups.from_batch({"input_ids": torch.zeros(2, 2), "group": torch.tensor([0, 0])}).counts.tolist() == [2]


def test_all_losses_of_a_batch_share_its_groups():
    plain = {"input_ids": torch.zeros(6, 2), "group": grouped(COUNTS)}
    batch = GroupedBatch(plain)
    assert RowGroups.from_batch(batch) is RowGroups.from_batch(batch)
    assert torch.equal(RowGroups.from_batch(batch).counts, RowGroups.from_batch(plain).counts)


def test_item_weights_give_rows_equal_weight():
    counted = torch.tensor([[1, 1], [1, 0], [0, 0], [1, 0], [0, 0], [1, 1]])
    weights = rows_of(COUNTS).item_weights(counted)
    expected = [[1 / 9, 1 / 9], [1 / 9, 0], [0, 0], [1 / 9, 0], [0, 0], [1 / 9, 1 / 9]]
    assert weights.tolist() == [pytest.approx(line) for line in expected]


@pytest.mark.parametrize("how", ["cut", "mean", "max", "attention"])
@pytest.mark.parametrize("scale", [1.0, 500.0])
def test_pooling_equals_numpy_pooling(how, scale):
    counts = [1] * 6 if how == "cut" else COUNTS
    logits = scale * drawn(6, 4)
    expected = pooled_by_numpy(logits.double().numpy(), counts, how)
    result = pool_window_logits(logits, rows_of(counts), how)
    assert result.shape == expected.shape
    assert np.allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("how", ["mean", "max", "attention"])
def test_the_gradient_of_pooling_is_its_slope(how):
    slope_of(lambda logits: pool_window_logits(logits, rows_of(COUNTS), how).square().sum(), drawn(6, 4))


@pytest.mark.parametrize("how", ["mean", "max", "attention"])
def test_one_window_is_pooled_to_itself(how):
    logits = drawn(3, 4)
    expected = logits[:, :-1] if how == "attention" else logits
    assert torch.allclose(pool_window_logits(logits, rows_of([1, 1, 1]), how), expected)


def test_the_most_of_impossible_classes_is_impossible_however_many_windows_others_have():
    logits = torch.tensor([[0.0, -torch.inf], [1.0, 2.0], [0.5, 1.0]])
    pooled = pool_window_logits(logits, rows_of([1, 2]), "max")
    assert pooled.tolist() == [[0.0, -torch.inf], [1.0, 2.0]]
