"""A recipe of another command is named as such, with the command that reads it."""

import pytest
from annotated_types import Ge, Gt, Le, Lt

from compress.errors import UsageError
from compress.label.label_schema import LabelRecipe
from compress.pretrain.pretrain_schema import PretrainRecipe
from compress.recipe.field_types import LABELLING, PRETRAINING, TASK, Frozen, other_kind
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


KEYS = {Ge: ("ge", "minimum"), Gt: ("gt", "exclusiveMinimum"), Le: ("le", "maximum"), Lt: ("lt", "exclusiveMaximum")}


def sections_below(section):
    for each in section.__subclasses__():
        yield each
        yield from sections_below(each)


def test_the_tightest_limit_of_a_field_is_the_one_that_holds():
    """Of two limits of one kind, one of a type and one of a field, pydantic keeps the last in the field's metadata."""
    checked = 0
    for section in sections_below(Frozen):
        for name, field in section.model_fields.items():
            shape = section.model_json_schema()["properties"][field.alias or name]
            for kind, (key, word) in KEYS.items():
                if limits := [getattr(each, key) for each in field.metadata if isinstance(each, kind)]:
                    held = [each[word] for each in (shape, *shape.get("anyOf", ())) if word in each]
                    assert held == [max(limits) if kind in (Ge, Gt) else min(limits)], f"{section.__name__}.{name}"
                    checked += 1
    assert checked > 40
