"""Every shipped recipe reads, resolves and plans."""

from pathlib import Path

import pytest

from compress.cards import available
from compress.pipeline.run import Options, prepare


@pytest.mark.parametrize("name", sorted(available("recipes")))
def test_a_shipped_recipe_plans(name: str, tmp_path: Path) -> None:
    plan = prepare(name, (), Options(runs=tmp_path))
    assert plan.recipe.name == name
    assert [step.kind for step in plan.steps][:4] == ["data", "finetune", "distill", "prune"]


@pytest.mark.parametrize("name", sorted(available("recipes")))
def test_a_shipped_recipe_is_short_and_says_what_it_is(name: str) -> None:
    lines = available("recipes")[name].read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= 20
