"""Texts in, answers out: a tokenizer, a predictor and a task kind together. What `compress.open(folder)` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from compress.tasks.base import Arrays, Example, Kind, Row, TaskInput


class Asked(NamedTuple):
    """What is to be answered, and where it stands."""

    where: str
    """`text 2`, `texts.tsv, line 4`."""
    text: TaskInput


class Prepared(NamedTuple):
    """Texts as the model reads them."""

    rows: Sequence[Row]
    counts: Sequence[int]
    """Examples of each row."""
    examples: Sequence[Example]


@dataclass(frozen=True)
class TextModel:
    """A model that answers texts: `predict` prepares them, runs their examples in batches and decodes what comes."""

    task: TaskInfo
    kind: Kind
    tokens: TextTokenizer
    predictor: Predictor

    @classmethod
    def open(cls, folder: Path, placement: Placement = ONE_THREAD) -> TextModel:
        """Open a model folder or an exported one; the latter without torch."""
        task = read_info(folder).task
        if task is None:
            raise ModelError(f"{folder} does not say which task it answers, so texts mean nothing to it.")
        return cls(task, kind_of(task), TextTokenizer.load(folder), open_predictor(folder, placement))

    def predict(self, texts: Sequence[TaskInput], batch: int = 32, places: Sequence[str] = ()) -> list[dict[str, Any]]:
        """One answer a text, e.g. ``{"label": "positive", "probability": 0.98}``.

        Args:
            texts: texts, or tuples where the task reads several: a pair, a question and its choices.
            batch: how many run together. An INT8 model's numbers depend on it a little: it shares one scale a batch.
            places: where each text stands, which messages tell; by default its number.
        """
        if isinstance(texts, str):
            raise UsageError("predict takes a list of texts; got one text.", hint=f"predict([{texts[:20]!r}])")
        if batch < 1:
            raise UsageError(f"a batch holds at least one text; got {batch}.")
        named = places or range(1, len(texts) + 1)
        parts = [slice(start, start + batch) for start in range(0, len(texts), batch)]
        return [answer for part in parts for answer in self._answered(texts[part], named[part], batch)]

    def prepare(self, texts: Sequence[TaskInput], places: Sequence[str | int] = ()) -> Prepared:
        """The examples of all texts; messages tell their places, or number them."""
        named = places or range(1, len(texts) + 1)
        rows = [self._row(text, position) for text, position in zip(texts, named, strict=True)]
        found = [self.kind.examples(row, self.task, self.tokens) for row in rows]
        return Prepared(rows, [len(examples) for examples in found], [each for examples in found for each in examples])

    def arrays(self, examples: Sequence[Example]) -> Arrays:
        """One padded batch."""
        return self.kind.collate(examples, self.tokens.pad_id)

    def _answered(self, texts: Sequence[TaskInput], places: Sequence[str | int], batch: int) -> list[dict[str, Any]]:
        prepared = self.prepare(texts, places)
        decided: list[NDArray[Any]] = []
        for start in range(0, len(prepared.examples), batch):
            arrays = self.arrays(prepared.examples[start : start + batch])
            decided += self.kind.decode(self.predictor.predict(arrays), arrays, self.task)
        return self.kind.to_json(self.kind.predictions(decided, prepared.counts, prepared.rows, self.task), self.task)

    def _row(self, text: TaskInput, position: str | int) -> Row:
        try:
            return self.kind.from_input(text, self.task)
        except UsageError as error:
            where = position if isinstance(position, str) else f"text {position}"
            raise UsageError(f"{where}: {error.message}", hint=error.hint) from error


def read_texts(
    given: Iterable[str],
    batch: int,
    *,
    several: bool,
    source: str | None = None,
    empty: Callable[[str], None] = lambda where: None,
) -> Iterator[list[Asked]]:
    """Texts in batches, as they come: a file or a pipe is never read as a whole.

    Args:
        given: texts as they were typed, or the lines of a file.
        batch: most texts in one batch.
        several: each holds several texts with tabs between them.
        source: the file whose lines they are: line ends are taken off, and lines without text passed over.
        empty: called with the position of each line that is passed over.
    """
    waiting: list[Asked] = []
    for number, text in enumerate(given, 1):
        where = f"text {number}" if source is None else f"{source}, line {number}"
        line = text if source is None else text.rstrip("\r\n")
        if source is not None and not line.strip():
            empty(where)
            continue
        waiting.append(Asked(where, tuple(line.split("\t")) if several and "\t" in line else line))
        if len(waiting) == batch:
            yield waiting
            waiting = []
    if waiting:
        yield waiting
