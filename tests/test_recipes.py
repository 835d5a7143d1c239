"""Every shipped recipe reads, resolves and plans, and begins with its teacher on files in the way that it shows."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from compress.cards import available
from compress.console import Console
from compress.pipeline.run import Options, execute, prepare
from compress.recipe.load import dump_recipe

OF_FILES = sorted(
    name for name, path in available("recipes").items() if "$COMPRESS_DATA" in path.read_text(encoding="utf-8")
)
"""Those that show a command for files."""


@pytest.mark.parametrize("name", sorted(available("recipes")))
def test_a_shipped_recipe_plans(name: str, tmp_path: Path) -> None:
    plan = prepare(name, (), Options(runs=tmp_path))
    assert plan.recipe.name == name
    student = ["distill"] if plan.recipe.student else []
    assert [model.step for model in plan.models] == ["finetune", *student, "cut", "recover"]
    (tmp_path / "recipe.yaml").write_text(dump_recipe(plan.recipe), encoding="utf-8")  # as a run's folder has it
    assert prepare(tmp_path / "recipe.yaml", (), Options(runs=tmp_path)).recipe == plan.recipe


@pytest.mark.parametrize("name", sorted(available("recipes")))
def test_a_shipped_recipe_is_short_and_says_what_it_is(name: str) -> None:
    lines = available("recipes")[name].read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= 20


def shown_settings(name: str, data: Path) -> list[str]:
    """What follows `--set` in the command that a recipe shows for files below $COMPRESS_DATA."""
    comments = [line for line in available("recipes")[name].read_text(encoding="utf-8").splitlines() if line[0] == "#"]
    text = " ".join(line.lstrip("#").strip().removesuffix("\\") for line in comments)
    below = re.search(r"\(D: (\S+?)\)", text)
    for short, long in (("$D", below[1] if below else "$D"), ("$COMPRESS_DATA", str(data))):
        text = text.replace(short, long)
    words = shlex.split(re.sub(r"'(?=[a-z] )", "", text[text.index("compress run") :]))
    return [setting for word, setting in pairwise(words) if word == "--set"]


def settings_for_files(name: str, data: Path) -> list[str]:
    """Those of the command with which a recipe reads files below $COMPRESS_DATA."""
    settings = [setting for setting in shown_settings(name, data) if str(data) in setting]
    other = [setting for setting in shown_settings(name, data) if "header" in setting or "first_label" in setting]
    assert any(setting.startswith("task.data.train=") for setting in settings)
    return [*settings, *other]


@pytest.mark.parametrize("name", OF_FILES)
def test_a_shipped_recipe_plans_on_files_as_it_says(name: str, data_folder: Path, tmp_path: Path) -> None:
    plan = prepare(name, settings_for_files(name, data_folder), Options(runs=tmp_path))
    assert plan.recipe.task.data.hub is None


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_FILES)
def test_a_shipped_recipe_trains_its_teacher(name: str, data_folder: Path, tmp_path: Path) -> None:
    """With the checkpoint that it names: the recipes of other tests have tiny ones."""
    few = ["prune=null", "task.data.limit=16", "finetune.epochs=1"]
    options = Options(runs=tmp_path, until="finetune")
    settings = [*settings_for_files(name, data_folder), *few]
    result = execute(prepare(name, settings, options), options, Console("quiet"))
    result.raise_for_failures()
    assert "finetune" in result.outcome.records
