"""The messages that the service gets for a row, from the recipe's templates or the default ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from compress.errors import Problem, nearest
from compress.label.answer_forms import ANSWER_FORMS
from compress.recipe.label_schema import LabelRecipe

PLACEHOLDER = re.compile(r"\{([^\W\d][\w .-]*)\}")
"""`{labels}`, `{review}`; the braces of JSON are followed by a quote."""
LABELS = "labels"

Messages = list[dict[str, str]]


def messages_for(texts: Sequence[str], recipe: LabelRecipe) -> Messages:
    """Return the system and the user message for the texts of a row, in the order of the task's columns."""
    form = ANSWER_FORMS[recipe.task.kind]
    system = _filled(_instructions(recipe), {LABELS: _label_list(recipe)})
    columns = dict(zip(recipe.task.text, texts, strict=True))
    user = _filled(recipe.prompt.input or _default_input(recipe), columns)
    return [
        {"role": "system", "content": f"{system.rstrip()}\n\nAnswer with JSON alone: {form.example}"},
        {"role": "user", "content": user},
    ]


def prompt_problems(recipe: LabelRecipe) -> Iterator[Problem]:
    """Yield the placeholders that nothing replaces, and templates without what the service must see."""
    for key, template, known in (
        ("instructions", recipe.prompt.instructions, (LABELS,)),
        ("input", recipe.prompt.input, recipe.task.text),
    ):
        for name in PLACEHOLDER.findall(template or ""):
            if name not in known:
                yield Problem(("prompt", key), f"nothing replaces '{{{name}}}'{nearest(name, known)}")
    shown = PLACEHOLDER.findall(recipe.prompt.input or _default_input(recipe))
    if missing := [column for column in recipe.task.text if column not in shown]:
        wanted = ", ".join(f"{{{column}}}" for column in missing)
        yield Problem(("prompt", "input"), f"has no {wanted}: the service would not see that text")
    for label in recipe.meanings:
        if label not in (recipe.task.labels or ()):
            yield Problem(("meanings", label), f"is no label{nearest(label, recipe.task.labels or ())}")


def _instructions(recipe: LabelRecipe) -> str:
    """Return the recipe's instructions or the default ones; the labels, or the range of scores, are always in them.

    A service without structured output would not know them otherwise.
    """
    instructions = recipe.prompt.instructions or _default_request(recipe)
    if recipe.scores:
        instructions += " The score is from {:g} to {:g}.".format(*recipe.scores)
    if recipe.task.labels and LABELS not in PLACEHOLDER.findall(instructions):
        instructions += f"\n\nLabels:\n{{{LABELS}}}"
    return instructions


def _default_request(recipe: LabelRecipe) -> str:
    """Return the first sentence of a kind's prompt, which names both texts of a pair."""
    request = ANSWER_FORMS[recipe.task.kind].request
    columns = recipe.task.text
    return request.replace("the text", f"the {' and the '.join(columns)} together") if len(columns) > 1 else request


def _default_input(recipe: LabelRecipe) -> str:
    """Return the text alone, or each of a pair below its column's name."""
    columns = recipe.task.text
    return f"{{{columns[0]}}}" if len(columns) == 1 else "\n\n".join(f"{name}:\n{{{name}}}" for name in columns)


def _label_list(recipe: LabelRecipe) -> str:
    meanings = recipe.meanings
    return "\n".join(
        f"- {label}: {meanings[label]}" if label in meanings else f"- {label}" for label in recipe.task.labels or ()
    )


def _filled(template: str, values: Mapping[str, str]) -> str:
    """Replace placeholders in one pass: what a text holds in braces stays as it is."""
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template)
