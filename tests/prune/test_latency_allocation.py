"""The allocation under a budget, against trying everything."""

from itertools import product

import numpy as np
import pytest

from compress.prune.latency_allocation import BINS, allocate, allocate_to_some, pareto_front


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
