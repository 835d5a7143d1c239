"""Which word pieces of a tokenizer the texts of a task use, and the tokenizer of those alone."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from compress.data.tokenizer import TextTokenizer, whole_texts
from compress.data.tokenizer_subset import check_rule, select_pieces
from compress.errors import ModelError
from compress.model_folder.model_info import TaskInfo
from compress.models.load_save import replace_tokenizer_json
from compress.recipe.student_schema import Vocabulary
from compress.tasks import kind_of
from compress.tasks.base import Encoding, Row


@dataclass(frozen=True)
class PieceChoice:
    """The pieces of a tokenizer that are kept."""

    kept: list[int]
    """The old id of each new one."""
    before: int
    """How many there were."""
    counts: NDArray[np.int64]
    """How often each old id occurs."""
    tokenizer: PreTrainedTokenizerBase
    """Of the kept pieces."""
    changed: Mapping[str, float]
    """By role, the share of rows that it splits differently."""


def choose_pieces(
    tokenizer: PreTrainedTokenizerBase,
    tokens: TextTokenizer,
    special: Collection[int],
    corpus: Mapping[str, Sequence[Row]],
    task: TaskInfo,
    rule: Vocabulary | None,
    longest: int | None = None,
    *,
    held: Mapping[str, Sequence[Row]] | None = None,
) -> PieceChoice:
    """Return the pieces that a rule keeps; without a rule they are all kept.

    Args:
        tokenizer: a fast one.
        tokens: the same, which makes examples of rows.
        special: ids that stay in any case.
        corpus: by role the rows whose pieces are counted.
        task: of all rows.
        rule: which pieces stay.
        longest: tokens of the longest text that is read; None: of any length.
        held: further rows by role, of which only the share that is tokenized differently is determined.
    """
    texts = TaskTexts(task, tokens)
    table = check_rule(tokenizer, rule)
    before = whole_texts(table.content)
    counts = np.zeros(max(table.every) + 1, np.int64)
    for rows in corpus.values():
        for ids in texts.pieces(rows, before):
            counts += np.bincount(ids, minlength=len(counts))
    if rule is None:
        return PieceChoice(list(range(len(counts))), len(table.every), counts, tokenizer, {})
    kept = table.ordered(select_pieces(table, counts, rule, {*special} & table.every))
    fewer = replace_tokenizer_json(tokenizer, table.subset(kept), longest)
    after, changed = whole_texts(json.loads(fewer.backend_tokenizer.to_str())), dict[str, float]()
    for role, rows in {**corpus, **(held or {})}.items():
        if len(rows):
            changed[role] = texts.share_changed(rows, before, after, np.array(kept))
            if rule == "seen" and role in corpus and changed[role]:
                raise ModelError(
                    f"{changed[role]:.2%} of the rows of {role} are tokenized differently with the vocabulary that they"
                    " use: this tokenizer cannot be pruned.",
                    hint="leave vocabulary out",
                )
    return PieceChoice(kept, len(table.every), counts, fewer, changed)


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
