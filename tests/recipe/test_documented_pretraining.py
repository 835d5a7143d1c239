"""The pretraining recipes in the documentation parse."""

import re
from pathlib import Path

import pytest

from compress.pipeline.preflight.recipe_checks import NAMES
from compress.pretrain.pretrain_schema import PretrainRecipe
from compress.recipe.load import parse_as

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("pretraining*.md"))
SHOWN = [text for page in PAGES for text in re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]


@pytest.mark.parametrize("text", SHOWN)
def test_recipes_shown_in_docs_parse(text: str) -> None:
    parse_as(PretrainRecipe, text, "docs", (), NAMES)
