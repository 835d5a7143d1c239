"""Texts in, answers out: a tokenizer, a predictor and a task kind together. What `compress.open(folder)` returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.data.tokens import Tokens
from compress.errors import DataError, ModelError, UsageError
from compress.folder import TaskInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.predictor import ONE_THREAD, Place, Predictor
from compress.tasks import kind_of
from compress.tasks.kind import Arrays, Kind

Text = str | tuple[str, str]
"""One text, or the two of a pair."""


@dataclass(frozen=True)
class TextModel:
    """A model that answers texts: `tokenize`, `run` and `decode` are its steps, `predict` takes them in batches."""

    task: TaskInfo
    kind: Kind
    tokens: Tokens
    predictor: Predictor

    @classmethod
    def open(cls, folder: Path, place: Place = ONE_THREAD) -> TextModel:
        """Open a model folder or an exported one; the latter without torch."""
        task = read_info(folder).task
        if task is None:
            raise ModelError(f"{folder} does not say which task it answers, so texts mean nothing to it.")
        return cls(task, kind_of(task), Tokens.load(folder), open_predictor(folder, place))

    @property
    def takes_pairs(self) -> bool:
        """Whether it reads two texts at a time."""
        return len(self.task.text) == 2

    def predict(self, texts: Sequence[Text], batch: int = 32) -> list[dict[str, Any]]:
        """One answer a text, e.g. ``{"label": "positive", "probability": 0.98}``.

        Args:
            texts: texts, or pairs where the task reads two.
            batch: how many run together. An INT8 model's numbers depend on it a little: it shares one scale a batch.
        """
        if isinstance(texts, str):
            raise UsageError("predict takes a list of texts; got one text.", hint=f"predict([{texts[:20]!r}])")
        if batch < 1:
            raise UsageError(f"a batch holds at least one text; got {batch}.")
        chunks = (texts[start : start + batch] for start in range(0, len(texts), batch))
        return [answer for chunk in chunks for answer in self.decode(self.run(self.tokenize(chunk)))]

    def tokenize(self, texts: Sequence[Text]) -> Arrays:
        """One padded batch of the texts' pieces."""
        rows = self._rows(texts)
        examples = [example for row in rows for example in self.kind.examples(row, self.task, self.tokens.encode)]
        return self.kind.collate(examples, self.tokens.pad_id)

    def run(self, arrays: Arrays) -> Arrays:
        """The model's outputs for one batch."""
        return self.predictor.predict(arrays)

    def decode(self, outputs: Arrays) -> list[dict[str, Any]]:
        """Answers that people can read, one a text."""
        rows = len(next(iter(outputs.values())))
        return self.kind.readable(self.kind.answers(outputs, [1] * rows), self.task)

    def _rows(self, texts: Sequence[Text]) -> Iterator[dict[str, str | None]]:
        """Canonical rows, or an error that says how many texts the task reads."""
        for number, text in enumerate(texts, start=1):
            parts = tuple(text) if isinstance(text, (tuple, list)) else (text,)
            if len(parts) != len(self.task.text) or not all(isinstance(part, str) for part in parts):
                expected = f"a pair ({', '.join(self.task.text)})" if self.takes_pairs else "one text"
                raise UsageError(f"text {number}: {self.task.name} reads {expected}; got {text!r}.")
            yield {"text": parts[0], "text_pair": parts[1] if self.takes_pairs else None}


def read_texts(given: Iterable[str], batch: int, *, pairs: bool, from_lines: bool) -> Iterator[list[Text]]:
    """Texts in batches, as they come: a file or a pipe is never read as a whole.

    Args:
        given: texts as they were typed, or the lines of a file.
        batch: most texts in one batch.
        pairs: each holds two texts with a tab between them.
        from_lines: take line ends off, and pass over empty lines.
    """
    waiting: list[Text] = []
    for number, text in enumerate(given, start=1):
        line = text.rstrip("\r\n") if from_lines else text
        if from_lines and not line.strip():
            continue
        waiting.append(_split(line, number) if pairs else line)
        if len(waiting) == batch:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _split(line: str, number: int) -> tuple[str, str]:
    parts = line.split("\t")
    if len(parts) != 2:
        raise DataError(
            f"text {number}: expected two texts with one tab between them, got {len(parts)}: {line[:60]!r}."
        )
    return parts[0], parts[1]
