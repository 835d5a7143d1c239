"""Checks of a latency table against the model that will be pruned, before anything runs."""

import pytest

from compress.pipeline.run import Options, check_plan, prepare
from tests.conftest import write_tiny_recipe
from tests.prune.test_latency_table import table


@pytest.fixture
def errors_of(tmp_path):
    """The teacher has hidden size 32, four heads and an FFN of 64; the student one layer."""

    def check(speedup, round_to=16, **changes):
        recipe, path = write_tiny_recipe(tmp_path), tmp_path / "phone.json"
        path.write_text(table(**{"layers": 1} | changes).model_dump_json())
        goal = f"to: {{speedup: {speedup}}}, latency_table: {path}, round_to: {round_to},"
        recipe.write_text(recipe.read_text().replace("heads: 0.25, ffn: 0.5,", goal))
        options = Options(runs=tmp_path / "runs")
        return check_plan(prepare(recipe, (), options), options).errors

    return check


def test_a_table_of_this_architecture_is_taken(errors_of):
    assert errors_of(3.0) == []


@pytest.mark.parametrize(
    ("speedup", "changes", "reason"),
    [
        (3.0, {"layers": 2}, "layers 2, and the model has layers 1"),
        (3.0, {"family": "roberta"}, "family roberta"),
        (3.0, {"attention": {"1": 0.0, "2": 1.0}}, "number of heads is listed up to 2"),
        (30.0, {}, "at most 10.0 times faster"),
    ],
)
def test_others_and_goals_out_of_reach_are_refused(errors_of, speedup, changes, reason):
    errors = errors_of(speedup, **changes)
    assert len(errors) == 1
    assert reason in errors[0]


def test_a_goal_that_wide_blocks_put_out_of_reach_is_refused(errors_of):
    (error,) = errors_of(2.0, round_to=64)
    assert "at most 1.4 times faster" in error
