import pytest

from compress.recipe.prune_schema import Prune


@pytest.mark.parametrize(
    ("settings", "criterion"),
    [
        ({"heads": 0.25}, "taylor"),
        ({"to": {"parameters": 0.5}}, "taylor"),
        ({"to": {"speedup": 2}}, "fisher"),
        ({"to": {"speedup": 2}, "criterion": "kwon"}, "kwon"),
    ],
)
def test_the_criterion_depends_on_the_goal_unless_it_is_given(settings, criterion):
    assert Prune.model_validate(settings).criterion == criterion


def test_the_long_form_of_a_recipe_means_the_same():
    settings = Prune.model_validate({"to": {"speedup": 2}, "criterion": "taylor"})
    assert Prune.model_validate(settings.model_dump()) == settings
