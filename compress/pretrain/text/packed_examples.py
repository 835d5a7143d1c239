"""Packed sequences as the examples of a training: read from the corpus's files a batch at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import ATTENTION_MASK, BATCH_POSITIONS, INDEX, INPUT_ARRAYS, BatchArray
from compress.data.splits.concatenated_rows import Origin
from compress.pretrain.text.corpus_pieces import Corpus, CorpusPart
from compress.pretrain.text.packing import COLUMNS, DTYPE, SPECIAL_OF_PAIR, SPECIAL_OF_RUN, records_file
from compress.storage.mapped_arrays import MappedArray
from compress.tasks.base import Arrays

MASKABLE = "maskable"
"""0 at special pieces and padding."""
WORD_START = "word_start"
"""1 at the first piece of a word."""
NEXT_SENTENCE = "next_sentence"
"""Of a pair (rows,): 0 where the second part follows the first, 1 where it is from another document, as in BERT."""

PACKED_ARRAYS: Mapping[str, BatchArray] = {
    array.name: array
    for array in (
        *INPUT_ARRAYS,
        ATTENTION_MASK,
        BatchArray(MASKABLE, "token", np.int64),
        BatchArray(WORD_START, "token", np.int64),
        BatchArray(NEXT_SENTENCE, "example", np.int64),
        *BATCH_POSITIONS,
    )
}
"""Those that a batch may hold: `token_type_ids` where the model reads them, `next_sentence` where pairs are made."""

TOKEN_TYPES = "token_type_ids"


@dataclass(frozen=True)
class SpecialPieces:
    """The ids that sequences are put together with, and those that are never masked."""

    pad: int
    cls: int
    sep: int
    mask: int
    others: tuple[int, ...]
    """All special ids but that of unknown words."""


class PackedExamples:
    """The sequences of one part with up to ``length`` pieces (implements `train.objective.Examples`)."""

    def __init__(
        self, corpus: Path, packing: Path, part: CorpusPart, length: int, special: SpecialPieces, token_types: bool
    ) -> None:
        """``token_types`` says whether the model reads which part of a pair each piece belongs to."""
        self.corpus = Corpus(corpus, part)
        self._records = MappedArray(records_file(packing, part, length), DTYPE, COLUMNS)
        self.special, self._token_types = special, token_types
        records = self._records.values
        self.has_pairs = bool(len(records) and records[0, 3])
        fixed = SPECIAL_OF_PAIR if self.has_pairs else SPECIAL_OF_RUN
        self.lengths: NDArray[np.int64] = records[:, 1] - records[:, 0] + records[:, 3] - records[:, 2] + fixed
        self.example_lengths = self.lengths
        self.cacheable = 0
        self._records.release()

    def __len__(self) -> int:
        return len(self.lengths)

    def digest(self) -> str:
        """Return a digest of the pieces and of how they are packed."""
        digest = hashlib.sha256(self.corpus.digest().encode())
        for block in self._records.blocks():
            digest.update(np.ascontiguousarray(block).data)
        return digest.hexdigest()

    def arrays(self) -> Mapping[str, BatchArray]:
        """Return the declarations of the arrays of a batch."""
        absent = {*(() if self._token_types else (TOKEN_TYPES,)), *(() if self.has_pairs else (NEXT_SENTENCE,))}
        return {name: array for name, array in PACKED_ARRAYS.items() if name not in absent}

    def vocabulary(self) -> NDArray[np.int64]:
        """Return all ids: any of them may replace a piece."""
        return np.arange(self.corpus.info["vocabulary"], dtype=np.int64)

    def batch(self, indices: Sequence[int] | NDArray[np.int64]) -> Arrays:
        """Return the padded arrays of these sequences."""
        indices = np.asarray(indices, dtype=np.int64)
        shape = len(indices), int(self.lengths[indices].max())
        arrays = {name: np.zeros(shape, array.dtype) for name, array in self.arrays().items() if array.per == "token"}
        ids = arrays["input_ids"]
        ids[:] = self.special.pad
        labels = np.zeros(len(indices), np.int64)
        for row, index in enumerate(indices):
            start, stop, second, end, labels[row] = self._records.values[index].tolist()
            spans = [(start, stop), (second, end)] if self.has_pairs else [(start, stop)]
            place = 1
            for number, (first, last) in enumerate(spans):
                inner = slice(place, place + last - first)
                ids[row, inner] = self.corpus.pieces.values[first:last]
                arrays[WORD_START][row, inner] = self.corpus.word_starts.values[first:last]
                arrays[WORD_START][row, place] = 1
                if self._token_types:
                    arrays[TOKEN_TYPES][row, place : inner.stop + 1] = number
                ids[row, inner.stop] = self.special.sep
                place = inner.stop + 1
            ids[row, 0] = self.special.cls
            arrays["attention_mask"][row, :place] = 1
        self._release()
        arrays[MASKABLE][:] = (arrays["attention_mask"] == 1) & ~np.isin(ids, self.special.others)
        pairs = {NEXT_SENTENCE: labels} if self.has_pairs else {}
        return {**arrays, **pairs, INDEX: indices}

    def documents(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the document in which each of these sequences begins, counted from 0."""
        return self.corpus.document_of(self._records.values[indices, 0])

    def origins(self, indices: NDArray[np.int64]) -> list[Origin]:
        """Return the documents in which these sequences begin, as rows."""
        return [Origin("train", int(number)) for number in self.documents(indices)]

    def _release(self) -> None:
        self.corpus.release()
        self._records.release()
