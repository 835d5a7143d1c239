"""What the service gets for a row, and what it answers: messages, and for a kind of task the answer's JSON schema.

Messages come from the recipe's templates or the default ones. An answer is a JSON object with one key. Whatever is not
exactly a label (or a number in range) is invalid: it is asked for again, never guessed.
"""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, ClassVar, Literal

from compress.errors import Problem, nearest
from compress.label.label_schema import LabelRecipe
from compress.tasks import kind_of
from compress.tasks.kinds.multi_label import THRESHOLD
from compress.tasks.parsing.columns import class_name

LABEL, SOFT_LABELS = "label", "soft_labels"
"""Columns of the data files that are written."""

FENCE = re.compile(r"^```[a-z]*\s*|\s*```$")
"""How many models mark JSON where nothing forces them to write it alone."""


class AnswerForm(ABC):
    """How one kind of task is answered."""

    key: ClassVar[str]
    """The only key of an answer."""
    request: ClassVar[str]
    """The first sentence of the default prompt."""
    example: ClassVar[str]
    """The answer as it is described to the service."""
    expected: ClassVar[str] = "one of the labels"
    """What an answer must be, in messages."""
    needs: ClassVar[Literal["labels", "scores"]] = "labels"
    """What the recipe has to give: the labels, or the range of scores."""

    @abstractmethod
    def value_schema(self, recipe: LabelRecipe) -> dict[str, Any]:
        """Return the JSON schema of the answer's value."""

    @abstractmethod
    def check(self, value: Any, recipe: LabelRecipe) -> Any:
        """Return a valid value in its plain form, or None."""

    @abstractmethod
    def combine(self, values: Sequence[Any], recipe: LabelRecipe) -> dict[str, Any]:
        """Return the label columns of a row from the valid answers to it, at least one."""

    def schema(self, recipe: LabelRecipe) -> dict[str, Any]:
        """Return the JSON schema of an answer."""
        properties = {self.key: self.value_schema(recipe)}
        return {"type": "object", "properties": properties, "required": [self.key], "additionalProperties": False}

    def parse(self, text: str, recipe: LabelRecipe) -> Any:
        """Return the value of an answer, or None where it is invalid.

        Services without structured output write the object between code fences, or its value alone; nothing else is
        accepted.
        """
        bare = FENCE.sub("", text.strip())
        try:
            value = json.loads(bare)
        except (ValueError, RecursionError):
            value = bare.strip().removesuffix(".").strip("\"'")
        if isinstance(value, Mapping):
            value = value.get(self.key) if len(value) == 1 else None
        return None if value is None else self.check(value, recipe)


def form_of(recipe: LabelRecipe) -> AnswerForm:
    """Return how the recipe's kind of task is answered."""
    form: type[AnswerForm] = resolve_name(kind_of(recipe.task).answer_form)
    return form()


class OneClass(AnswerForm):
    """Classification: one label; the soft labels are the shares of the answers."""

    key = "label"
    request = "Classify the text: answer with the one label that fits best."
    example = '{"label": "one of the labels"}'

    def value_schema(self, recipe: LabelRecipe) -> dict[str, Any]:
        """Return an enumeration of the labels."""
        return {"type": "string", "enum": list(recipe.task.labels or ())}

    def check(self, value: Any, recipe: LabelRecipe) -> str | None:
        """Return the label."""
        return _label(value, recipe)

    def combine(self, values: Sequence[Any], recipe: LabelRecipe) -> dict[str, Any]:
        """Return the most frequent label, the first of equals, and the share of each."""
        shares = {label: values.count(label) / len(values) for label in recipe.task.labels or ()}
        return {LABEL: max(shares, key=lambda label: shares[label]), SOFT_LABELS: shares}


class SeveralClasses(AnswerForm):
    """Multi-label: any number of labels; the soft labels are the share of the answers that hold each."""

    key = "labels"
    request = "Classify the text: answer with every label that applies, which may be none."
    example = '{"labels": ["those of the labels that apply"]}'
    expected = "a list of the labels"

    def value_schema(self, recipe: LabelRecipe) -> dict[str, Any]:
        """Return a list of the labels' enumeration."""
        return {"type": "array", "items": {"type": "string", "enum": list(recipe.task.labels or ())}}

    def check(self, value: Any, recipe: LabelRecipe) -> list[str] | None:
        """Return the labels in their order, each once."""
        named = [_label(each, recipe) for each in value] if isinstance(value, list) else [None]
        return None if None in named else [label for label in recipe.task.labels or () if label in named]

    def combine(self, values: Sequence[Any], recipe: LabelRecipe) -> dict[str, Any]:
        """Return the labels of at least half of the answers, and the share of each."""
        shares = {label: sum(label in each for each in values) / len(values) for label in recipe.task.labels or ()}
        return {LABEL: [label for label, share in shares.items() if share >= THRESHOLD], SOFT_LABELS: shares}


class Score(AnswerForm):
    """Regression: a number; several answers have their mean as label, and there are no soft labels."""

    key = "score"
    request = "Score the text: answer with a number."
    example = '{"score": a number}'
    expected = "a score in the range"
    needs = "scores"

    def value_schema(self, recipe: LabelRecipe) -> dict[str, Any]:
        """Return a number with its limits."""
        low, high = _range(recipe)
        return {"type": "number", "minimum": low, "maximum": high}

    def check(self, value: Any, recipe: LabelRecipe) -> float | None:
        """Return the number, if it is in range."""
        try:
            number = math.nan if isinstance(value, (bool, list)) else float(value)
        except (TypeError, ValueError, OverflowError):
            return None
        low, high = _range(recipe)
        return number if low <= number <= high else None

    def combine(self, values: Sequence[Any], recipe: LabelRecipe) -> dict[str, Any]:
        """Return the mean."""
        return {LABEL: sum(values) / len(values)}


def _label(value: Any, recipe: LabelRecipe) -> str | None:
    """Return the label that ``value`` names: exactly, or in other letter case where that is only one."""
    if not isinstance(value, (str, int, float)):
        return None
    name, labels = class_name(value).strip(), recipe.task.labels or ()
    if name in labels:
        return name
    alike = [label for label in labels if label.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


def _range(recipe: LabelRecipe) -> tuple[float, float]:
    return recipe.scores or (-math.inf, math.inf)


PLACEHOLDER = r"[^\W\d][\w .-]*"
"""What may be a placeholder besides names that are: `{labels}`, `{review}`. Braces of JSON are followed by a quote."""
LABELS = "labels"

Messages = list[dict[str, str]]


def messages_for(texts: Sequence[str], recipe: LabelRecipe) -> Messages:
    """Return the system and the user message for the texts of a row, in the order of the task's columns."""
    form = form_of(recipe)
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
        for name in _placeholders(known).findall(template or ""):
            if name not in known:
                yield Problem(("prompt", key), f"nothing replaces '{{{name}}}'{nearest(name, known)}")
    shown = _placeholders(recipe.task.text).findall(recipe.prompt.input or _default_input(recipe))
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
    if recipe.task.labels and LABELS not in _placeholders((LABELS,)).findall(instructions):
        instructions += f"\n\nLabels:\n{{{LABELS}}}"
    return instructions


def _default_request(recipe: LabelRecipe) -> str:
    """Return the first sentence of a kind's prompt, which names both texts of a pair."""
    request = form_of(recipe).request
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
    return _placeholders(values).sub(lambda match: values.get(match[1], match[0]), template)


def _placeholders(names: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of placeholders: these names, whatever is in them, and what may be meant for one."""
    known = map(re.escape, sorted(names, key=len, reverse=True))
    return re.compile(rf"\{{({'|'.join([*known, PLACEHOLDER])})\}}")
