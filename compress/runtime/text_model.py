"""From texts to predictions: a tokenizer, a predictor and a task kind together, as `compress.open` returns them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from compress.data.tokenizer import TextTokenizer
from compress.errors import ModelError, UsageError
from compress.model_info import TaskInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.predictor import ONE_THREAD, Placement, Predictor
from compress.tasks import kind_of
from compress.tasks.base import Arrays, Example, Row, TaskInput
from compress.tasks.kind import Kind


class NumberedText(NamedTuple):
    """A text and its origin."""

    origin: str
    """`text 2`, `texts.tsv, line 4`."""
    text: TaskInput


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

    @classmethod
    def open(cls, folder: Path, placement: Placement = ONE_THREAD) -> TextModel:
        """Open a model folder or an exported one, the latter without torch."""
        task = read_info(folder).task
        if task is None:
            raise ModelError(f"{folder} does not state which task it was trained for, so it cannot read texts.")
        return cls(task, kind_of(task), TextTokenizer.load(folder), open_predictor(folder, placement))

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
        named = origins or range(1, len(texts) + 1)
        parts = [slice(start, start + batch) for start in range(0, len(texts), batch)]
        return [found for part in parts for found in self._predict_batch(texts[part], named[part], batch)]

    def prepare(self, texts: Sequence[TaskInput], origins: Sequence[str | int] = ()) -> Prepared:
        """Return the examples of all texts; errors name their origins, or number them."""
        named = origins or range(1, len(texts) + 1)
        rows = [self._row(text, origin) for text, origin in zip(texts, named, strict=True)]
        with self._task_fits("its text columns"):
            encoded = [self.kind.examples(row, self.task, self.tokens) for row in rows]
        counts = [len(examples) for examples in encoded]
        return Prepared(rows, counts, [example for examples in encoded for example in examples])

    def arrays(self, examples: Sequence[Example]) -> Arrays:
        """Return one padded batch."""
        return self.kind.collate(examples, self.tokens.pad_id)

    def _predict_batch(
        self, texts: Sequence[TaskInput], origins: Sequence[str | int], batch: int
    ) -> list[dict[str, Any]]:
        prepared = self.prepare(texts, origins)
        decoded: list[NDArray[Any]] = []
        for start in range(0, len(prepared.examples), batch):
            arrays = self.arrays(prepared.examples[start : start + batch])
            outputs = self.predictor.predict(arrays)
            shapes = ", ".join(f"{name} {values.shape}" for name, values in outputs.items())
            with self._task_fits(f"the outputs {shapes}"):
                decoded += self.kind.decode(outputs, arrays, self.task)
        with self._task_fits("the outputs"):
            found = self.kind.predictions(decoded, prepared.counts, prepared.rows, self.task)
            if len(found) != len(texts):
                raise ValueError(f"expected {len(texts)} predictions, got {len(found)}")
            return self.kind.to_json(found, self.task)

    def _row(self, text: TaskInput, origin: str | int) -> Row:
        try:
            with self._task_fits("its text columns"):
                return self.kind.from_input(text, self.task)
        except UsageError as error:
            name = origin if isinstance(origin, str) else f"text {origin}"
            raise UsageError(f"{name}: {error.message}", hint=error.hint) from error

    @contextmanager
    def _task_fits(self, what: str) -> Iterator[None]:
        """Report a compress.json whose task is not the one that the model was trained for."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            labels = f" with {len(self.task.labels)} labels" if self.task.labels else ""
            raise ModelError(
                f"{what} do not fit a task of the kind {self.task.kind}{labels}, which its compress.json states."
            ) from error


def read_texts(
    given: Iterable[str],
    batch: int,
    *,
    several: bool,
    source: str | None = None,
    empty: Callable[[str], None] = lambda origin: None,
) -> Iterator[list[NumberedText]]:
    """Yield texts in batches as they arrive: a file or a pipe is never read completely first.

    Args:
        given: texts, or the lines of a file.
        batch: the largest number of texts in one batch.
        several: each may hold several texts with tabs between them.
        source: the file whose lines they are: line ends are removed, and lines without text skipped.
        empty: called with the origin of each skipped line.
    """
    waiting: list[NumberedText] = []
    for number, text in enumerate(given, 1):
        origin = f"text {number}" if source is None else f"{source}, line {number}"
        line = text if source is None else text.rstrip("\r\n")
        if source is not None and not line.strip():
            empty(origin)
            continue
        waiting.append(NumberedText(origin, tuple(line.split("\t")) if several and "\t" in line else line))
        if len(waiting) == batch:
            yield waiting
            waiting = []
    if waiting:
        yield waiting
