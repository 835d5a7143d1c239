"""A recipe of another command is named as such, with the command that reads it."""

import pytest

from compress.errors import UsageError
from compress.label.label_schema import LabelRecipe
from compress.pretrain.pretrain_schema import PretrainRecipe
from compress.recipe.field_types import LABELLING, PRETRAINING, TASK, other_kind
from compress.recipe.load import parse_as
from compress.recipe.schema import Recipe

RECIPES = {
    TASK: (Recipe, "task: sst2\nteacher: minilm-l6\n"),
    LABELLING: (LabelRecipe, "task: sst2\nendpoint: {url: 'http://localhost', model: small}\n"),
    PRETRAINING: (PretrainRecipe, "text: a.txt\nstart: minilm-l6\n"),
}


@pytest.mark.parametrize("given", RECIPES, ids=lambda kind: kind.command)
@pytest.mark.parametrize("expected", RECIPES, ids=lambda kind: kind.command)
def test_a_recipe_of_another_command_is_named(given, expected):
    (schema, _), (_, text) = RECIPES[expected], RECIPES[given]
    assert schema.recipe_kind == expected
    if given == expected:
        assert other_kind([given.key], expected) is None
        return
    with pytest.raises(UsageError, match=f"r.yaml is {given.title}") as caught:
        parse_as(schema, text, "r.yaml")
    assert caught.value.hint == f"{given.command} r.yaml"
