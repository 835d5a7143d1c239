"""The rows of a recipe of `compress label`, and what each is asked; checks of the recipe before any row is read."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from compress.console import Console
from compress.data.loading.row_sources import SkipRow, open_sources, valid_rows
from compress.errors import DataError, Problem
from compress.label.answer_cache import request_key
from compress.label.label_schema import LabelRecipe
from compress.label.prompt_and_answer import LABEL, SOFT_LABELS, Messages, form_of, messages_for, prompt_problems
from compress.recipe.load import load_as
from compress.tasks import KINDS, TASK_NAMES, kind_of
from compress.tasks.validate_task import TEXTS_ALONE, task_problems


class BlankRow(DataError):
    """A row without any text, which is not sent to the service."""


class AskedText(NamedTuple):
    """One row of the data as the service sees it."""

    texts: tuple[str, ...]
    messages: Messages
    key: str
    held_out: bool


def load_label_recipe(path: Path, overrides: Sequence[str] = ()) -> LabelRecipe:
    """Load a recipe of `compress label`; all problems are reported at once, each with its line."""
    return load_as(LabelRecipe, path, overrides, TASK_NAMES, [label_problems])


def label_problems(recipe: LabelRecipe) -> Iterator[Problem]:
    """Yield every problem that the settings alone show."""
    task = recipe.task
    forms = {name: kind.answer_form for name, kind in KINDS.items() if kind.answer_form}
    if task.kind not in forms:
        yield Problem(("task", "kind"), f"a service cannot label {task.kind}; it can label {', '.join(forms)}")
        return
    # Labels and a test set are made here, from train, which may be texts alone.
    data = task.data.model_copy(update={"test_share": recipe.held_out or 0.1})
    problems = task_problems(task.model_copy(update={"data": data, "soft_labels": None}))
    yield from (problem for problem in problems if not problem.message.endswith(TEXTS_ALONE))
    needs = form_of(recipe).needs
    if needs == "labels" and not task.labels:
        yield Problem(("task", "labels"), "is missing: the service must know which labels there are")
    if needs == "scores" and recipe.scores is None:
        yield Problem(("scores",), "is missing: the lowest and the highest score, such as [1, 5]")
    if needs != "scores" and recipe.scores is not None:
        readers = ", ".join(name for name, form in forms.items() if resolve_name(form).needs == "scores")
        yield Problem(("scores",), f"has no effect for {task.kind}; it is for {readers}")
    for column in {LABEL, SOFT_LABELS}.intersection(task.text):
        yield Problem(("task", "text"), f"the column '{column}' would be overwritten by the answers; rename it")
    yield from prompt_problems(recipe)


@dataclass
class LabelTask:
    """The rows of a recipe, read from their files each time: none is held in memory."""

    recipe: LabelRecipe
    console: Console

    @cached_property
    def _schema(self) -> dict[str, Any]:
        """The form of an answer, which names the labels."""
        return form_of(self.recipe).schema(self.recipe)

    @cached_property
    def count(self) -> int:
        """The number of valid rows that the data has; `limit` is not applied."""
        return sum(1 for _ in self._rows())

    def texts(self, skip: SkipRow = lambda fault: None) -> Iterator[AskedText]:
        """Yield the rows; with `task.data.limit` as many of them, at even distances over the whole data.

        ``skip`` gets the errors of blank rows, and of those that `task.data.bad_rows` leaves out.
        """
        limit = self.recipe.task.data.limit
        for number, texts in enumerate(self._rows(skip)):
            if limit is None or (number + 1) * limit // self.count > number * limit // self.count:
                yield self._asked(texts)

    def _rows(self, skip: SkipRow = lambda fault: None) -> Iterator[tuple[str, ...]]:
        task = self.recipe.task
        source, kind = open_sources(task, self.console)["train"], kind_of(task)
        for raw, row in valid_rows(source, task, task.labels or (), "unlabelled", skip):
            given = kind.to_input(row)
            texts = (given,) if isinstance(given, str) else given
            if any(text.strip() for text in texts):
                yield texts
            else:  # the service would answer something, and charge it
                skip(BlankRow(f"{raw.where}: there is no text."))

    def _asked(self, texts: tuple[str, ...]) -> AskedText:
        recipe = self.recipe
        messages, endpoint = messages_for(texts, recipe), recipe.endpoint
        key = request_key([endpoint.url, endpoint.model, messages, self._schema, recipe.sampling_temperature])
        drawn = int.from_bytes(hashlib.sha256(repr((recipe.seed, texts)).encode()).digest()[:8]) / 2**64
        return AskedText(texts, messages, key, drawn < recipe.held_out)
