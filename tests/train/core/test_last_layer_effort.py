"""How much work a probe may be, counted in operations."""

import itertools

import pytest

from compress.measure.resources.footprint import flops
from compress.model_folder.model_info import ShapeInfo
from compress.recipe.training_schema import Finetune
from compress.train.core.last_layer_effort import FREE, QUICK, SHARE, THOROUGH, FitWork, fit_budget, fit_work

SHAPE = ShapeInfo(
    family="bert",
    hidden=384,
    heads=(12,) * 6,
    ffn=(1536,) * 6,
    vocabulary=30522,
    parameters=22_700_000,
    embedding_parameters=11_900_000,
    head_size=32,
)
BOUNDS = Finetune(epochs={"least": 1.3, "most": 6}, batch_size=32)


def planned(rows, outputs, pieces, is_tags, settings=BOUNDS):
    """The search of a probe, its work, and that of the training that follows."""
    squares = float(pieces**2)
    work = fit_work(SHAPE, (outputs, 384), min(rows, 10_000), pieces, squares, pieces if is_tags else 1)
    budget = fit_budget(settings, SHAPE, rows, pieces, squares)
    search = work.search_within(budget)
    return search, work.of(search), 3 * rows * flops(SHAPE, pieces) * (1.3 + 6) / 2


@pytest.mark.parametrize(
    ("rows", "outputs", "pieces", "is_tags"),
    [(4_478, 159, 24, True), (10_003, 77, 20, False), (10_000, 1_000, 20, False), (67_000, 2, 25, False)],
)
def test_it_is_at_most_a_tenth_of_the_training(rows, outputs, pieces, is_tags):
    _, work, training = planned(rows, outputs, pieces, is_tags)
    assert work <= SHARE * training * 1.0001


def test_without_the_bound_tags_cost_more_than_the_training():
    work = fit_work(SHAPE, (159, 384), 4_478, 24, 24.0**2, 24)
    assert work.of(THOROUGH) > 3 * 4_478 * flops(SHAPE, 24) * 3.65


@pytest.mark.parametrize(
    ("rows", "outputs", "pieces", "is_tags"), [(2_000, 2, 25, False), (500, 73, 12, True), (67_000, 2, 25, False)]
)
def test_where_it_is_cheap_the_search_is_thorough(rows, outputs, pieces, is_tags):
    assert planned(rows, outputs, pieces, is_tags)[0] == THOROUGH


def test_strengths_are_compared_on_a_sample_before_rows_are_left_out():
    work = FitWork(encoding=1e12, evaluation=1e11)
    assert work.search_within(None) == work.search_within(work.of(THOROUGH)) == THOROUGH
    fewer = work.search_within(1.2 * work.of(QUICK))
    assert (fewer.rows, fewer.strengths, fewer.held_out) == (1.0, QUICK.strengths, 1)
    assert QUICK.sample < fewer.sample < 1
    assert work.search_within(work.of(QUICK) / 2).rows == pytest.approx(0.5)


def test_no_budget_is_exceeded():
    for encoding, evaluation, budget in itertools.product((1e10, 1e12, 1e14), (1e7, 1e10, 1e12), (1e11, 1e12, 1e13)):
        work = FitWork(encoding, evaluation)
        assert work.of(work.search_within(budget)) <= budget * 1.0001


def test_the_budget_follows_the_training():
    forward = flops(SHAPE, 20)

    def budget(rows=100_000, probes=1, **settings):
        return fit_budget(Finetune(**{"epochs": 2, "batch_size": 10, **settings}), SHAPE, rows, 20.0, 400.0, probes)

    assert budget() == pytest.approx(0.1 * 3 * 200_000 * forward)
    assert budget(probes=2) == pytest.approx(budget() / 2)
    assert budget(epochs={"least": 1, "most": 3}) == pytest.approx(budget())
    assert budget(max_steps=10_000, accumulate=2) == pytest.approx(budget())
    assert budget(max_steps=5_000, accumulate=2) == pytest.approx(budget() / 2)
    assert budget(rows=100) == FREE


def test_families_of_unknown_operations_have_a_budget_too():
    other = SHAPE.model_copy(update={"family": "mobilebert"})
    settings = Finetune(epochs=2, batch_size=10)
    budgets = [fit_budget(settings, shape, 100_000, 20.0, 400.0) for shape in (SHAPE, other)]
    assert budgets[1] == pytest.approx(budgets[0], rel=0.1)
