import pytest
import torch

from compress.prune.allocation import least_loss, select_units


def test_least_important_units_are_removed_from_any_layer():
    importances = [torch.tensor([9.0, 8, 7, 6]), torch.tensor([1.0, 5, 2, 3])]
    assert select_units(importances, 0.25) == [[0, 1, 2, 3], [1, 3]]
    assert select_units(importances, 0.25, even=True) == [[0, 1, 2], [1, 2, 3]]


def test_every_layer_keeps_at_least_one_unit():
    importances = [torch.tensor([9.0, 8, 7, 6]), torch.tensor([0.0, 0, 0, 1])]
    assert select_units(importances, 0.75) == [[0], [3]]


def test_neurons_are_kept_in_blocks():
    importances = [torch.arange(64.0), torch.arange(64.0) + 40]
    kept = select_units(importances, 0.5, block=16)
    assert [len(layer) for layer in kept] == [16, 48]
    assert kept[0] == list(range(48, 64))
    assert kept[1] == list(range(16, 64))


def test_incomplete_block_is_removed_first():
    (kept,) = select_units([torch.arange(20.0)], 0.2, block=16)
    assert kept == list(range(4, 20))
    assert select_units([torch.arange(20.0)], 0.0, block=16) == [list(range(20))]


@pytest.mark.parametrize("removed", [0.0, 0.1, 0.25, 0.5, 0.8])
def test_number_of_removed_units_matches_ratio(removed):
    generator = torch.Generator().manual_seed(1)
    importances = [torch.rand(12, generator=generator) for _ in range(6)]
    for even in (False, True):
        remaining = sum(map(len, select_units(importances, removed, even=even)))
        assert abs(remaining - (1 - removed) * 72) <= (3 if even else 0.5)


def test_ties_are_broken_by_order():
    assert select_units([torch.ones(4), torch.ones(4)], 0.5) == [[0, 1, 2], [0]]


def test_least_loss_weighs_heads_against_neurons():
    heads, ffn = [torch.tensor([9.0, 8, 0, 0])], [torch.tensor([1.0, 1, 1, 0])]
    assert least_loss([(0.0, 0.75), (0.25, 0.5), (0.5, 0.25), (0.75, 0.0)], heads, ffn, 1, False) == (0.5, 0.25)
