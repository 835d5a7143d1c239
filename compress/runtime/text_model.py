"""From texts to predictions: a tokenizer, a predictor and a task kind together, as `compress.open` returns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from compress.data.tokenizer import TextTokenizer
from compress.errors import ModelError, UsageError
from compress.model_info import TaskInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.predictor import ONE_THREAD, Placement, Predictor
from compress.sentence_transformers_files import default_prompt
from compress.tasks import kind_of
from compress.tasks.base import Arrays, Example, Row, TaskInput
from compress.tasks.kind import Kind


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

    @classmethod
    def open(cls, folder: Path, placement: Placement = ONE_THREAD) -> TextModel:
        """Open a model folder or an exported one, the latter without torch."""
        task = read_info(folder).task
        if task is None:
            raise ModelError(f"{folder} does not state which task it was trained for, so it cannot read texts.")
        prompt = default_prompt(folder) if kind_of(task).head == "sentence-embedding" else ""
        return cls(task, kind_of(task), TextTokenizer.load(folder), open_predictor(folder, placement), prompt)

    def predict(self, texts: Sequence[TaskInput], batch: int = 32, origins: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return one prediction per text, e.g. ``{"label": "positive", "probability": 0.98}``.

        Args:
            texts: texts, or tuples where the task reads several: a pair, a question and its choices.
            batch: how many run together. An INT8 model's outputs depend on it a little: a batch shares one scale.
            origins: where each text comes from, for error messages; by default its number.
        """
        if isinstance(texts, str):
            raise UsageError("predict takes a list of texts; got one text.", hint=f"predict([{texts[:20]!r}])")
        if batch < 1:
            raise UsageError(f"a batch holds at least one text; got {batch}.")
        named = origins or _numbered(texts)
        parts = [slice(start, start + batch) for start in range(0, len(texts), batch)]
        try:
            return [found for part in parts for found in self._predict_batch(texts[part], named[part], batch)]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            labels = f" with {len(self.task.labels)} labels" if self.task.labels else ""
            raise ModelError(
                f"the model's inputs and outputs do not fit a task of the kind {self.task.kind}{labels}, which its "
                "compress.json states."
            ) from error

    def prepare(self, texts: Sequence[TaskInput], origins: Sequence[str] = ()) -> Prepared:
        """Return the examples of all texts; errors name their origins, or number them."""
        rows = [self._row(text, origin) for text, origin in zip(texts, origins or _numbered(texts), strict=True)]
        encoded = [self.kind.examples(row, self.task, self.tokens) for row in rows]
        return Prepared(rows, list(map(len, encoded)), list(chain.from_iterable(encoded)))

    def arrays(self, examples: Sequence[Example]) -> Arrays:
        """Return one padded batch."""
        return self.kind.collate(examples, self.tokens.pad_id)

    def _predict_batch(self, texts: Sequence[TaskInput], origins: Sequence[str], batch: int) -> list[dict[str, Any]]:
        prepared = self.prepare(texts, origins)
        decoded: list[NDArray[Any]] = []
        for start in range(0, len(prepared.examples), batch):
            arrays = self.arrays(prepared.examples[start : start + batch])
            decoded += self.kind.decode(self.predictor.predict(arrays), arrays, self.task)
        results = self.kind.predictions(decoded, prepared.counts, prepared.rows, self.task)
        if len(results) != len(texts):
            raise ValueError(f"expected {len(texts)} predictions, got {len(results)}")
        return self.kind.to_json(results, self.task)

    def _row(self, text: TaskInput, origin: str) -> Row:
        if self.prompt:
            text = self.prompt + text if isinstance(text, str) else tuple(self.prompt + each for each in text)
        try:
            return self.kind.from_input(text, self.task)
        except UsageError as error:
            raise UsageError(f"{origin}: {error.message}", hint=error.hint) from error


def _numbered(texts: Sequence[TaskInput]) -> list[str]:
    return [f"text {number}" for number in range(1, len(texts) + 1)]
