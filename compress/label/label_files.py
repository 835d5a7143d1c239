"""The data files of labelled rows, in one folder: train.jsonl, test.jsonl, a recipe for them, and service.json."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, TextIO

from compress.errors import DataError, UsageError, pluralize
from compress.label.answer_cache import AnswerCache
from compress.label.label_schema import LabelRecipe
from compress.label.label_task import AskedText, LabelTask
from compress.label.prompt_and_answer import LABEL, SOFT_LABELS, form_of
from compress.label.service_info import SERVICE_FILE, ServiceInfo, write_service
from compress.label.spending import MILLION, cost, spent_on
from compress.recipe.yaml_lines import dump_yaml
from compress.storage.atomic_write import new_folder, why_unwritable
from compress.storage.file_digests import file_digest

TRAIN_FILE, TEST_FILE, RECIPE_FILE = "train.jsonl", "test.jsonl", "recipe.yaml"
TASK_KEYS = {"kind", "text", "labels", "metric", "max_length", "long", "overlap", "max_windows"}
"""What the recipe for the labelled rows takes from the task; the rest is about columns that they do not have."""


def check_target(target: Path) -> None:
    """Refuse a folder that holds anything but what this command wrote, and one that cannot be created."""
    if target.exists() and not (target / SERVICE_FILE).is_file() and (target.is_file() or any(target.iterdir())):
        raise UsageError(f"{target} exists and was not written by compress label.", hint="--to names another folder")
    if reason := why_unwritable(target):
        raise UsageError(f"{target} cannot be written: {reason}.")


def write_files(task: LabelTask, cache: AnswerCache, target: Path, blank: int) -> tuple[ServiceInfo, list[str]]:
    """Write the rows that have an answer, and what the service is, into the folder ``target``.

    Args:
        task: the rows.
        cache: their answers.
        target: the folder, which is replaced.
        blank: the number of rows without text.

    Returns:
        What the service is, and why rows were left out, with what would ask for them again.
    """
    with new_folder(target) as work:
        with (
            (work / TRAIN_FILE).open("w", encoding="utf-8") as train,
            (work / TEST_FILE).open("w", encoding="utf-8") as test,
        ):
            writer = RowWriter(task.recipe, cache, train, test)
            for text in task.texts():
                writer.write(text)
        left_out = list(writer.left_out())
        if not writer.texts:
            reason = f"the service has answered none of {writer.unanswered:,} texts."
            raise DataError(" ".join([reason, *left_out]))
        if writer.texts == writer.held_out:
            reason = f"all {writer.held_out:,} rows that are answered are held back: none is left to train on."
            raise DataError(reason, hint="give more rows, or a smaller held_out; their answers are stored")
        info = writer.info(work / TEST_FILE, blank)
        write_service(work, info)
        recipe = dump_yaml(task_recipe(task.recipe, target, has_test=info.test_rows > 0))
        (work / RECIPE_FILE).write_text(f"# compress run {target / RECIPE_FILE}\n{recipe}", encoding="utf-8")
    return info, left_out


@dataclass
class RowWriter:
    """Writes one row after the other, and counts."""

    recipe: LabelRecipe
    cache: AnswerCache
    train: TextIO
    test: TextIO
    texts: int = 0
    unanswered: int = 0
    refused: int = 0
    cut_off: int = 0
    invalid: int = 0
    held_out: int = 0
    agreements: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """The sum and the number of the shares of equal pairs of answers."""

    def write(self, text: AskedText) -> None:
        """Write a row with the label that its valid answers amount to."""
        form = form_of(self.recipe)
        values = [form.parse(answer, self.recipe) for answer in self.cache.valid_answers(text.key)]
        if not values:
            self._count_unanswered(text.key)
            return
        labels = form.combine(values, self.recipe)
        if self.recipe.samples == 1:  # a single answer has no shares
            labels.pop(SOFT_LABELS, None)
        row = dict(zip(self.recipe.task.text, text.texts, strict=True)) | labels
        (self.test if text.held_out else self.train).write(json.dumps(row, ensure_ascii=False) + "\n")
        self.texts += 1
        self.held_out += text.held_out
        pairs = [one == other for one, other in combinations(values, 2)]
        if pairs:
            self.agreements[0] += sum(pairs) / len(pairs)
            self.agreements[1] += 1

    def _count_unanswered(self, key: str) -> None:
        self.unanswered += 1
        if self.cache.is_refused(key):
            self.refused += 1
        elif self.cache.was_cut_off(key):
            self.cut_off += 1
        elif not self.cache.missing_samples(key):
            self.invalid += 1

    def left_out(self) -> Iterator[str]:
        """Yield why rows have no label, with what would ask for them again."""
        if self.refused:
            reason = f"such as: {self.cache.example_refusal()}; --retry-refused asks again"
            yield f"{pluralize(self.refused, 'row')} left out that the service refused, {reason}."
        if self.cut_off:
            limit = self.recipe.answer_tokens
            again = f"--set answer_tokens={2 * limit} asks again"
            yield f"{pluralize(self.cut_off, 'row')} left out whose answer was cut off at {limit} tokens; {again}."
        if self.invalid:
            expected, example = form_of(self.recipe).expected, (self.cache.example_invalid() or "")[:80]
            again = f"such as {example!r}; --set attempts={2 * self.recipe.attempts} asks again"
            yield f"{pluralize(self.invalid, 'row')} left out whose answers are not {expected}, {again}."

    def info(self, test_file: Path, blank: int) -> ServiceInfo:
        """Return what the service is, from what was written and what its answers used."""
        recipe, used = self.recipe, self.cache.usage()
        measured = used.stated and used.valid > 0
        given, made = (count / max(used.valid, 1) for count in (used.input_tokens, used.output_tokens))
        return ServiceInfo(
            model=recipe.endpoint.model,
            kind=recipe.task.kind,
            labels=recipe.task.labels or (),
            samples=recipe.samples,
            temperature=recipe.sampling_temperature,
            texts=self.texts,
            unanswered=self.unanswered,
            refused=self.refused,
            cut_off=self.cut_off,
            blank=blank,
            test_rows=self.held_out,
            test_digest=file_digest(test_file) if self.held_out else None,
            self_agreement=self.agreements[0] / self.agreements[1] if self.agreements[1] else None,
            input_tokens=given if measured else None,
            output_tokens=made if measured else None,
            prices=recipe.prices,
            cost=spent_on(recipe, used),
            cost_is_exact=used.stated and not used.lost,
            cost_of_million=cost(recipe.prices, given * MILLION, made * MILLION) if measured else None,
        )


def task_recipe(recipe: LabelRecipe, target: Path, has_test: bool) -> dict[str, Any]:
    """Return the recipe of `compress run` that reads the files in ``target``; an empty test.jsonl is left out."""
    task = recipe.task.model_dump(mode="json", include=TASK_KEYS, exclude_defaults=True)
    data = {"train": str(target / TRAIN_FILE)} | ({"test": str(target / TEST_FILE)} if has_test else {})
    soft = {"soft_labels": SOFT_LABELS} if recipe.samples > 1 and recipe.task.labels else {}
    return {
        "name": recipe.name,
        "task": {**task, "data": data, "label": LABEL, **soft},
        "teacher": "minilm-l6",
        "student": "half-depth",
        "quantize": "int8",
        "service": str(target / SERVICE_FILE),
    }
