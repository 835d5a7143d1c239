"""From texts to predictions: a tokenizer, a predictor and a task kind together, as `compress.open` returns them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compress.data.tokenizer import TextTokenizer
from compress.errors import DataError, ModelError, UsageError
from compress.model_folder.cascade_info import is_cascade
from compress.model_folder.model_info import FolderInfo, TaskInfo, VariantInfo, read_info
from compress.model_folder.sentence_transformers_files import default_prompt
from compress.runtime import open_predictor
from compress.runtime.predictor import ONE_THREAD, Placement, Predictor
from compress.tasks import kind_of
from compress.tasks.base import Arrays, Example, Row, TaskInput
from compress.tasks.kind import Kind

ANY_BATCH = 32
"""Texts that run together where their outputs do not depend on it."""
NO_TEXT = "no text"
"""The reason in the answer to an empty text."""


class Prepared(NamedTuple):
    """Texts as rows and examples of the task."""

    rows: Sequence[Row]
    counts: Sequence[int]
    """Number of examples of each row."""
    examples: Sequence[Example]


@dataclass(frozen=True)
class TextModel:
    """A model that reads texts: `predict` prepares them, runs their examples in batches and decodes the outputs."""

    task: TaskInfo
    kind: Kind
    tokens: TextTokenizer
    predictor: Predictor
    prompt: str = ""
    """Goes before each text of an embedding model that has a default prompt."""
    batch: int = ANY_BATCH
    """How many texts run together unless another number is asked for."""
    depends_on_batch: bool = False
    """Whether a text's outputs depend on what else is in its batch."""
    depends_on_text: ClassVar[bool] = False
    """Whether the time of a call depends on what its text says."""

    @classmethod
    def open(cls, folder: Path, placement: Placement = ONE_THREAD, variant: VariantInfo | None = None) -> TextModel:
        """Open a model folder, an exported one, or a cascade; only the first may need torch.

        ``variant``: how it runs, as `open_predictor` takes it.
        """
        info = read_info(folder)
        if is_cascade(info):
            from compress.runtime.cascade import CascadeModel

            return CascadeModel.of_folder(folder, placement)
        return cls.single(folder, info, placement, variant)

    @classmethod
    def single(cls, folder: Path, info: FolderInfo, placement: Placement, variant: VariantInfo | None) -> TextModel:
        """Open a folder that holds one model."""
        if info.task is None:
            raise ModelError(f"{folder} does not state which task it was trained for, so it cannot read texts.")
        prompt = default_prompt(folder) if kind_of(info.task).head == "sentence-embedding" else ""
        tokens, predictor = TextTokenizer.load(folder), open_predictor(folder, placement, variant)
        batch, depends = usual_batch(info.variant), depends_on_batch(info.variant)
        return TextModel(info.task, kind_of(info.task), tokens, predictor, prompt, batch, depends)

    def predict(
        self,
        texts: Sequence[TaskInput],
        batch: int | None = None,
        origins: Sequence[str] = (),
        *,
        every_class: bool = False,
    ) -> list[dict[str, Any]]:
        """Return one prediction per text, e.g. ``{"label": "positive", "probability": 0.98}``.

        The fields of an empty text's prediction are None, and its `reason` is `no text`.

        Args:
            texts: texts, or tuples where the task reads several: a pair, a question and its choices.
            batch: how many run together. The outputs of dynamic INT8 depend on it, because a batch shares one scale:
                by default it runs as many as were scored together, or one.
            origins: where each text comes from, for error messages; by default its number.
            every_class: with the probabilities of all classes.
        """
        if isinstance(texts, str):
            raise UsageError("predict takes a list of texts; got one text.", hint=f"predict([{texts[:20]!r}])")
        batch = self.batch if batch is None else batch
        if batch < 1:
            raise UsageError(f"a batch holds at least one text; got {batch}.")
        named = origins or _numbered(texts)
        parts = [slice(start, start + batch) for start in range(0, len(texts), batch)]
        return [found for part in parts for found in self._answer_part(texts[part], named[part], batch, every_class)]

    def prepare(self, texts: Sequence[TaskInput], origins: Sequence[str] = ()) -> Prepared:
        """Return the examples of all texts; errors name their origins, or number them."""
        named = zip(texts, origins or _numbered(texts), strict=True)
        found = [self.row_examples(text, origin) for text, origin in named]
        encoded = [examples for _, examples in found]
        return Prepared([row for row, _ in found], list(map(len, encoded)), list(chain.from_iterable(encoded)))

    def row_examples(self, text: TaskInput, origin: str) -> tuple[Row, list[Example]]:
        """Return an input as a row of the task and its examples, or raise an error that names its origin."""
        if self.prompt:
            text = with_prompt(self.prompt, text)
        with self._fits_its_task():
            try:
                row = self.kind.from_input(text, self.task)
            except UsageError as error:
                raise UsageError(f"{origin}: {error.message}", hint=error.hint) from error
            _check_characters(text, origin)
            return row, self.kind.examples(row, self.task, self.tokens)

    def arrays(self, examples: Sequence[Example]) -> Arrays:
        """Return one padded batch."""
        return self.kind.collate(examples, self.tokens.pad_id)

    def decode(self, examples: Sequence[Example]) -> list[NDArray[Any]]:
        """Return the decoded output of each example; they run as one batch."""
        arrays = self.arrays(examples)
        with self._fits_its_task():
            return self.kind.decode(self.predictor.predict(arrays), arrays, self.task)

    def answers(
        self, decoded: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], *, every_class: bool = False
    ) -> list[dict[str, Any]]:
        """Return the answer of each row, from the decoded outputs of its examples.

        ``every_class``: with the probabilities of all classes.
        """
        results = self.predictions(decoded, counts, rows)
        with self._fits_its_task():
            answers = self.kind.to_json(results, self.task)
            if every_class:
                for answer, line in zip(answers, results, strict=True):
                    answer["probabilities"] = dict(zip(self.task.labels, map(float, line), strict=True))
            return answers

    def adds_classes(self, fields: Sequence[str]) -> bool:
        """Whether answers with these fields have the probabilities of all classes beside what the kind answers."""
        return "probabilities" in fields and "probabilities" not in self.kind.answer_fields

    def predictions(self, decoded: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row]) -> NDArray[Any]:
        """Return the prediction of each row, from the decoded outputs of its examples."""
        with self._fits_its_task():
            results = self.kind.predictions(decoded, counts, rows, self.task)
            if len(results) != len(rows):
                raise ValueError(f"expected {len(rows)} predictions, got {len(results)}")
            return results

    def predict_rows(self, rows: Sequence[Row]) -> NDArray[Any]:
        """Return the prediction of each row of the task; those of similar length run together."""
        found = [self.kind.examples(row, self.task, self.tokens) for row in rows]
        examples = list(chain.from_iterable(found))
        order = np.argsort([len(each["input_ids"]) for each in examples], kind="stable")
        batches = [order[start : start + self.batch] for start in range(0, len(order), self.batch)]
        return self.predictions(self.decode_batches(examples, batches), list(map(len, found)), rows)

    def decode_batches(self, examples: Sequence[Example], batches: Iterable[NDArray[np.int64]]) -> list[NDArray[Any]]:
        """Return the decoded output of each example in order; ``batches`` are the examples that run together."""
        decoded: list[NDArray[Any]] = [np.empty(0)] * len(examples)
        for batch in batches:
            indices = batch.tolist()
            for index, output in zip(indices, self.decode([examples[index] for index in indices]), strict=True):
                decoded[index] = output
        return decoded

    def timed_call(self, texts: Sequence[TaskInput]) -> tuple[Callable[[], object], int]:
        """Return the model's work on these texts, which are prepared, and the tokens of its padded arrays.

        Rows may have more examples than one; the model gets as many as there are rows.
        """
        arrays = self.arrays(self.prepare(texts).examples[: len(texts)])
        return lambda: self.predictor.predict(arrays), arrays["input_ids"].shape[1]

    def for_timing(self, texts: Sequence[TaskInput]) -> tuple[TextModel, tuple[float, ...]]:
        """Return the model to time on these texts, and how much each counts; no weights where all count alike."""
        return self, ()

    def describe(self) -> dict[str, Any]:
        """Return what it runs with."""
        return self.predictor.describe()

    def _answer_part(
        self, texts: Sequence[TaskInput], origins: Sequence[str], batch: int, every_class: bool
    ) -> list[dict[str, Any]]:
        """Return the answers of a batch; a text that is empty gets an empty one, and the model does not see it."""
        empty = [self.kind.is_empty(text) for text in texts]
        if not any(empty):
            return self._predict_batch(texts, origins, batch, every_class)
        full = [index for index, is_empty in enumerate(empty) if not is_empty]
        read = [texts[index] for index in full]
        named = [origins[index] for index in full]
        given = iter(self._predict_batch(read, named, batch, every_class) if full else [])
        classes = {"probabilities": None} if every_class else {}
        return [
            {**self.kind.empty_answer(text), **classes, "reason": NO_TEXT} if is_empty else next(given)
            for text, is_empty in zip(texts, empty, strict=True)
        ]

    def _predict_batch(
        self, texts: Sequence[TaskInput], origins: Sequence[str], batch: int, every_class: bool
    ) -> list[dict[str, Any]]:
        prepared = self.prepare(texts, origins)
        starts = range(0, len(prepared.examples), batch)
        decoded = [found for start in starts for found in self.decode(prepared.examples[start : start + batch])]
        return self.answers(decoded, prepared.counts, prepared.rows, every_class=every_class)

    def _fits_its_task(self) -> _FitsItsTask:
        return _FitsItsTask(self.task)


class _FitsItsTask:
    """Turns the errors of arrays that a task cannot read into one that says so; entered four times for each text."""

    def __init__(self, task: TaskInfo) -> None:
        self._task = task

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (LookupError, TypeError, ValueError, AttributeError)):
            labels = f" with {len(self._task.labels)} labels" if self._task.labels else ""
            raise ModelError(
                f"the model's inputs and outputs do not fit a task of the kind {self._task.kind}{labels}, which its "
                "compress.json states."
            ) from error


def depends_on_batch(variant: VariantInfo | None) -> bool:
    """Return whether a text's outputs depend on its batch; files of earlier versions do not state it: INT8 may."""
    return variant is not None and (
        variant.batch_sensitive or (variant.batch_sensitive is None and variant.precision == "int8")
    )


def usual_batch(variant: VariantInfo | None) -> int:
    """Return how many texts run together by default.

    Where a text's outputs depend on its batch, as many as were scored together, and one where none were.
    """
    return (variant and variant.scored_batch) or 1 if depends_on_batch(variant) else ANY_BATCH


def _check_characters(given: TaskInput, origin: str) -> None:
    """Refuse half a character, which no tokenizer reads: one of two surrogates, or a byte that was no text."""
    try:
        for text in (given,) if isinstance(given, str) else given:
            str(text).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{origin}: it holds half a character ({error.reason}).") from error


def _numbered(texts: Sequence[TaskInput]) -> list[str]:
    return [f"text {number}" for number in range(1, len(texts) + 1)]


def answer_fields(task: TaskInfo, columns: int, probabilities: bool = False) -> tuple[str, ...]:
    """Return the fields of an answer to so many texts."""
    kind = kind_of(task)
    fields = tuple(kind.empty_answer("" if columns == 1 else ("",) * columns))
    if not probabilities or "probabilities" in fields:
        return fields
    if not (kind.exclusive and task.labels):
        raise UsageError(f"only tasks with classes have their probabilities; {task.name} answers {', '.join(fields)}.")
    return (*fields, "probabilities")


def with_prompt(prompt: str, given: TaskInput) -> TaskInput:
    """Return one input with a model's default prompt before each of its texts."""
    return prompt + given if isinstance(given, str) else tuple(prompt + each for each in given)
