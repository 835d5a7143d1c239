import pytest

from compress.recipe.prune_schema import Prune, PruneTo


@pytest.mark.parametrize(
    ("settings", "criterion"),
    [
        ({"heads": 0.25}, "taylor"),
        ({"to": {"parameters": 0.5}}, "taylor"),
        ({"to": {"speedup": 2}}, "fisher"),
        ({"to": {"speedup": 2}, "criterion": "kwon"}, "kwon"),
        ({"to": PruneTo(speedup=2)}, "fisher"),
        ({"to": PruneTo(parameters=0.5)}, "taylor"),
    ],
)
def test_the_criterion_depends_on_the_goal_unless_it_is_given(settings, criterion):
    assert Prune.model_validate(settings).criterion == criterion


def test_the_long_form_of_a_recipe_means_the_same():
    settings = Prune.model_validate({"to": {"speedup": 2}, "criterion": "taylor"})
    assert Prune.model_validate(settings.model_dump()) == settings


def test_the_long_form_names_no_goal_and_no_place_of_measuring_that_is_not_set():
    assert Prune.model_validate({"to": {"speedup": 2}}).model_dump()["to"] == {"speedup": 2.0}
    assert "target" not in Prune.model_validate({"to": {"speedup": 2}}).model_dump()
    assert Prune.model_validate({"to": {"speedup": 2}, "target": "cpu"}).model_dump()["target"] == "cpu"


@pytest.mark.parametrize(
    "settings", [{"to": {}}, {"to": {"parameters": 0.5, "speedup": 2}}, {"vocabulary": {"keep": 9, "min_count": 2}}]
)
def test_exactly_one_goal_is_given(settings):
    with pytest.raises(ValueError, match=r"give one"):
        Prune.model_validate(settings)
