"""The messages of a row, from default templates and the user's."""

import pytest

from compress.label.prompt_and_answer import messages_for
from tests.label.test_prompt_and_answer import recipe


def test_the_default_prompt_names_the_labels_and_their_meanings():
    given = recipe("classification", meanings={"bad": "not worth the ticket"})
    system, user = messages_for(["a {labels} film"], given)
    assert "- bad: not worth the ticket\n- good\n" in system["content"]
    assert system["content"].endswith('Answer with JSON alone: {"label": "one of the labels"}')
    assert user == {"role": "user", "content": "a {labels} film"}


def test_both_texts_of_a_pair_are_shown_by_name():
    given = recipe("classification")
    pair = given.model_copy(update={"task": given.task.model_copy(update={"text": ("question", "passage")})})
    system, user = messages_for(["who?", "she."], pair)
    assert "the question and the passage together" in system["content"]
    assert user["content"] == "question:\nwho?\n\npassage:\nshe."


def test_own_templates_may_hold_json():
    given = recipe("classification", prompt={"instructions": 'Say {"x": {labels}}', "input": "<{text}>"})
    system, user = messages_for(["{text}"], given)
    assert system["content"].startswith('Say {"x": - bad\n- good}')
    assert user["content"] == "<{text}>"


@pytest.mark.parametrize("prompt", [{}, "How good is it?"])
def test_regression_names_its_range(prompt):
    (system, _) = messages_for(["a"], recipe("regression", scores=(1, 5), prompt=prompt))
    assert "from 1 to 5" in system["content"]


@pytest.mark.parametrize("prompt", ["How good is it?", {"instructions": "How good is it?"}])
def test_the_short_form_and_labels_that_instructions_do_not_name(prompt):
    (system, _) = messages_for(["a"], recipe("classification", prompt=prompt))
    assert system["content"].startswith("How good is it?\n\nLabels:\n- bad\n- good\n\nAnswer with JSON alone: ")
