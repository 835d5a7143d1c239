"""The allocation under a budget, against trying everything."""

from itertools import product

import numpy as np
import pytest
import torch

from compress.prune.allocation import BINS, allocate, allocate_to_some, least_loss, pareto_front, select_units


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


def brute_force(costs, losses, budget):
    choices = product(*(range(len(each)) for each in costs))
    fitting = [choice for choice in choices if total(costs, choice) <= budget]
    return min((total(losses, choice) for choice in fitting), default=None)


def total(table, choice):
    return sum(each[option] for each, option in zip(table, choice, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_loses_the_least_of_all_choices_within_the_budget(seed):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 6, size=5)
    costs = [random.integers(0, 20, size=size).tolist() for size in sizes]
    losses = [random.random(size).tolist() for size in sizes]
    spare = 2 ** int(random.integers(0, 6))  # divides the steps, so that these costs are exact
    budget = sum(map(min, costs)) + spare
    assert BINS % spare == 0
    chosen = allocate(costs, losses, budget)
    assert total(costs, chosen) <= budget
    assert total(losses, chosen) == pytest.approx(brute_force(costs, losses, budget))


@pytest.mark.parametrize("seed", range(10))
def test_costs_between_steps_never_exceed_the_budget(seed):
    random = np.random.default_rng(seed)
    costs = [np.sort(random.random(50)) for _ in range(8)]
    losses = [np.sort(random.random(50))[::-1] for _ in range(8)]
    chosen = allocate(costs, losses, 3.0)
    assert total(costs, chosen) <= 3.0
    looser = allocate(costs, losses, 4.0)
    assert total(losses, looser) <= total(losses, chosen)


def test_none_where_the_cheapest_is_too_dear():
    assert allocate([[1.0, 2.0], [3.0]], [[1.0, 0.0], [0.0]], 3.9) is None


def test_a_budget_of_just_the_cheapest_takes_it():
    assert allocate([[2.0, 1.0], [3.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]], 4.0) == [1, 0]


def test_an_option_that_is_slower_and_worse_is_never_taken():
    assert allocate([[1.0, 2.0, 3.0]], [[3.0, 5.0, 0.0]], 2.5) == [0]


def test_one_part_keeps_something():
    costs, losses = [[-1.0, 1.0, 2.0], [-1.0, 2.0, 3.0]], [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert allocate(costs, losses, 5.0) == [0, 0]
    assert allocate_to_some(costs, losses, 5.0) in ([1, 0], [2, 0])
    assert allocate_to_some(costs, losses, -0.5) is None
    assert allocate_to_some(costs, losses, -3.0) is None
    assert allocate_to_some([[-1.0, 0.0], [-1.0, 0.0]], [[5.0, 0.0], [4.0, 0.0]], -1.0) == [1, 0]
    assert allocate_to_some(costs, [[3.0, 0.0, 0.0], [9.0, 1.0, 0.0]], 1.0) == [0, 1]


def test_only_options_that_no_other_beats_are_kept():
    costs, losses = np.array([3.0, 1.0, 2.0, 2.0, 4.0]), np.array([1.0, 5.0, 3.0, 4.0, 1.0])
    assert pareto_front(costs, losses).tolist() == [1, 2, 0]
