"""The pretraining recipes in the documentation parse."""

import re
from pathlib import Path

import pytest

from compress.pipeline.preflight.allowed_names import NAMES
from compress.recipe.load import parse_as
from compress.recipe.pretrain_schema import PretrainRecipe

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("pretraining*.md"))
SHOWN = [text for page in PAGES for text in re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]


@pytest.mark.parametrize("text", SHOWN)
def test_recipes_shown_in_docs_parse(text: str) -> None:
    parse_as(PretrainRecipe, text, "docs", (), NAMES)
