"""The texts of a task's rows as a tokenizer gets them, whole, and the pieces that it splits them into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from compress.data.tokenizer import TextTokenizer
from compress.model_info import TaskInfo
from compress.tasks import kind_of
from compress.tasks.base import Encoding, Row

ROWS_AT_ONCE = 1000


class TaskTexts:
    """Finds the texts in rows of any kind, and tokenizes them."""

    def __init__(self, task: TaskInfo, tokens: TextTokenizer) -> None:
        """``tokens`` makes the examples through which a kind names its texts."""
        self._task, self._tokens = task, tokens

    def pieces(self, rows: Sequence[Row], tokenizer: Tokenizer) -> Iterator[NDArray[np.int64]]:
        """Yield the ids of all texts of each row, without special tokens."""
        for start in range(0, len(rows), ROWS_AT_ONCE):
            texts = [self._texts(rows[index]) for index in range(start, min(start + ROWS_AT_ONCE, len(rows)))]
            encoded = iter(tokenizer.encode_batch([text for row in texts for text in row], add_special_tokens=False))
            for row in texts:
                yield np.array([index for _ in row for index in next(encoded).ids], np.int64)

    def share_changed(self, rows: Sequence[Row], before: Tokenizer, after: Tokenizer, kept: NDArray[np.int64]) -> float:
        """Return the share of rows that two tokenizers split differently; ``kept`` has the old id of each new one."""
        pairs = zip(self.pieces(rows, before), self.pieces(rows, after), strict=True)
        return sum(not np.array_equal(old, kept[new]) for old, new in pairs) / len(rows)

    def _texts(self, row: Row) -> list[str]:
        collector = _TextCollector(self._tokens)
        kind_of(self._task).examples(row, self._task, collector)
        return list(collector.texts)


class _TextCollector:
    """An `Encode` that records the texts it is given."""

    def __init__(self, tokens: TextTokenizer) -> None:
        self._tokens = tokens
        self.texts: dict[str, None] = {}

    def __call__(self, text: str, pair: str | None, max_tokens: int) -> Encoding:
        self._add(text, pair)
        return self._tokens(text, pair, max_tokens)

    def windows(self, text: str, pair: str | None, max_tokens: int, overlap: int, limit: int) -> list[Encoding]:
        self._add(text, pair)
        return self._tokens.windows(text, pair, max_tokens, overlap, limit)

    def _add(self, *texts: str | None) -> None:
        self.texts.update(dict.fromkeys(text for text in texts if text is not None))
