"""Which answers are valid for each kind, and what several of them amount to."""

import pytest

from compress.label.label_schema import LabelRecipe
from compress.label.prompt_and_answer import form_of
from compress.tasks import TASK_NAMES

ENDPOINT = {"url": "http://localhost/v1", "model": "large"}


def recipe(kind, **changes):
    task = {"kind": kind, "data": {"train": "rows.csv"}, "labels": None if kind == "regression" else ["bad", "good"]}
    return LabelRecipe.model_validate({"task": task, "endpoint": ENDPOINT, **changes}, context=TASK_NAMES)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("classification", '{"label": "good"}', "good"),
        ("classification", '```json\n{"label": "good"}\n```', "good"),
        ("classification", " Good. ", "good"),
        ("classification", '"good"', "good"),
        ("classification", '{"label": ["good"]}', None),
        ("classification", '{"label": "good", "sure": true}', None),
        ("classification", '{"class": "good"}', None),
        ("classification", "It is good", None),
        ("classification", "bad or good", None),
        ("classification", "", None),
        ("classification", "{" * 10_000, None),
        ("multi_label", '{"labels": ["good", "bad", "good"]}', ["bad", "good"]),
        ("multi_label", '{"labels": []}', []),
        ("multi_label", '["good"]', ["good"]),
        ("multi_label", '{"labels": ["good", "fine"]}', None),
        ("multi_label", '{"labels": "good"}', None),
        ("regression", '{"score": 2.5}', 2.5),
        ("regression", "4", 4.0),
        ("regression", '{"score": 7}', None),
        ("regression", '{"score": NaN}', None),
        ("regression", '{"score": true}', None),
        ("regression", '{"score": "high"}', None),
        ("regression", '{"score": [3]}', None),
        ("regression", '{"score": {}}', None),
    ],
)
def test_valid_answers(kind, text, value):
    given = recipe(kind, scores=(1, 5) if kind == "regression" else None)
    assert form_of(given).parse(text, given) == value


def test_labels_that_are_numbers():
    given = recipe("classification")
    task = given.task.model_copy(update={"labels": ("0", "1")})
    assert form_of(given).parse('{"label": 1}', given.model_copy(update={"task": task})) == "1"


def test_labels_that_differ_in_case_alone_are_not_guessed():
    given = recipe("classification")
    task = given.task.model_copy(update={"labels": ("May", "may")})
    named = given.model_copy(update={"task": task})
    assert [form_of(given).parse(text, named) for text in ("may", "MAY")] == ["may", None]


@pytest.mark.parametrize(
    ("kind", "values", "row"),
    [
        ("classification", ["good", "bad", "good"], {"label": "good", "soft_labels": {"bad": 1 / 3, "good": 2 / 3}}),
        ("classification", ["good", "bad"], {"label": "bad", "soft_labels": {"bad": 0.5, "good": 0.5}}),
        ("multi_label", [["good"], []], {"label": ["good"], "soft_labels": {"bad": 0.0, "good": 0.5}}),
        ("regression", [1.0, 4.0], {"label": 2.5}),
    ],
)
def test_several_answers_amount_to_one_label(kind, values, row):
    assert form_of(recipe(kind)).combine(values, recipe(kind)) == row
