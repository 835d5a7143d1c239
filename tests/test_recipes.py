"""Every shipped recipe reads, resolves and plans, also with files in the way that its first lines show."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from compress.cards import available
from compress.pipeline.run import Options, prepare


@pytest.mark.parametrize("name", sorted(available("recipes")))
def test_a_shipped_recipe_plans(name: str, tmp_path: Path) -> None:
    plan = prepare(name, (), Options(runs=tmp_path))
    assert plan.recipe.name == name
    student = ["distill"] if plan.recipe.student else []
    assert [model.step for model in plan.models] == ["finetune", *student, "cut", "recover"]


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


@pytest.mark.parametrize("name", sorted(available("recipes")))
def test_a_shipped_recipe_plans_on_files_as_it_says(name: str, data_folder: Path, tmp_path: Path) -> None:
    if "$COMPRESS_DATA" not in available("recipes")[name].read_text(encoding="utf-8"):
        pytest.skip("shows no command for files")
    settings = [setting for setting in shown_settings(name, data_folder) if str(data_folder) in setting]
    other = [
        setting for setting in shown_settings(name, data_folder) if "header" in setting or "first_label" in setting
    ]
    assert any(setting.startswith("task.data.train=") for setting in settings)
    plan = prepare(name, [*settings, *other], Options(runs=tmp_path))
    assert plan.recipe.task.data.hub is None
