"""Packing: which sentences make up each training sequence, in runs or in pairs for next sentence prediction.

Packed sequences are the examples of a training, read from the corpus's files a batch at a time.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import ATTENTION_MASK, BATCH_POSITIONS, INDEX, INPUT_ARRAYS, BatchArray
from compress.data.splits.row_store import Origin
from compress.errors import DataError
from compress.pretrain.text.corpus_pieces import Corpus, CorpusPart
from compress.storage.mapped_arrays import ArrayWriter, MappedArray
from compress.tasks.base import Arrays

Span = tuple[int, int]
"""The first piece, and the one after the last."""
Record = tuple[int, int, int, int, int]
"""The spans of both parts, the second of them empty without pairs, and whether it is from another document."""

COLUMNS = 5
DTYPE = "<i8"
READ_TOGETHER = 4096
"""Sentences that are read together."""
MOST_DRAWS = 20
"""Places that are drawn until a sentence fits; then one is cut."""
SPECIAL_OF_RUN, SPECIAL_OF_PAIR = 2, 3
"""Special pieces of a sequence: `[CLS] … [SEP]`, `[CLS] … [SEP] … [SEP]`."""


def records_file(folder: Path, part: CorpusPart, length: int) -> Path:
    """Return the file of the sequences of a part with up to ``length`` pieces."""
    return folder / f"{part}-{length}.bin"


def pack(corpus: Corpus, part: CorpusPart, length: int, *, pairs: bool, seed: int, folder: Path) -> int:
    """Write the sequences of a part, and return their number."""
    if pairs and len(corpus.documents.values) < 2:
        raise DataError(
            f"the part {part} has a single document, and next_sentence draws half of the pairs from two.",
            hint="next_sentence: false; more documents (in txt an empty line ends one); or another text.held_out",
        )
    folder.mkdir(parents=True, exist_ok=True)
    records = (
        pack_pairs(corpus, length - SPECIAL_OF_PAIR, seed) if pairs else pack_runs(corpus, length - SPECIAL_OF_RUN)
    )
    count = 0
    with ArrayWriter(records_file(folder, part, length), DTYPE) as writer:
        for record in records:
            writer.extend(record)
            count += 1
    if not count:
        raise DataError(
            f"no document of the part {part} has two sentences, which next_sentence needs.",
            hint="next_sentence: false; or whole documents, not single sentences (in txt an empty line ends one)",
        )
    return count


def pack_runs(corpus: Corpus, room: int) -> Iterator[Record]:
    """Yield runs of whole sentences of up to ``room`` pieces; longer sentences are cut into several."""
    first, last = 0, 0
    for start, end in _sentences(corpus, 0, len(corpus.sentences.values), room):
        if end - first > room and last > first:
            yield first, last, 0, 0, 0
            first = start
        last = end
    if last > first:
        yield first, last, 0, 0, 0


def pack_pairs(corpus: Corpus, room: int, seed: int) -> Iterator[Record]:
    """Yield pairs of up to ``room`` pieces; a document's last sentence is left out where no other goes with it.

    Both kinds of second parts are made alike, of as many whole sentences as there is room for, so that lengths give
    next to nothing away.
    The sentences that it replaces begin the next sequence.
    """
    random, ends = np.random.default_rng([seed, room]), corpus.documents.values[:, 0]
    first = 0
    for end in ends.tolist():
        sentences = list(_sentences(corpus, first, end, room // 2))
        position = 0
        while position < len(sentences) - 1:
            chunk = _fitting(sentences, position, room)
            cut = int(random.integers(1, len(chunk)))
            start, middle, last = chunk[0][0], chunk[cut - 1][1], chunk[-1][1]
            other = random.random() < 0.5
            if other:
                yield start, middle, *_from_another(corpus, first, end, room - (middle - start), room // 2, random), 1
            else:
                yield start, middle, chunk[cut][0], last, 0
            position += cut if other else len(chunk)
        first = end


def _sentences(corpus: Corpus, first: int, end: int, most: int) -> Iterator[Span]:
    """Yield these sentences, those of more than ``most`` pieces in several parts."""
    for block in range(first, end, READ_TOGETHER):
        for start, stop in corpus.sentences.values[block : min(end, block + READ_TOGETHER)].tolist():
            for part in range(start, stop, most):
                yield part, min(stop, part + most)
        corpus.sentences.release()


def _fitting(sentences: list[Span], position: int, room: int) -> list[Span]:
    """Return as many sentences from ``position`` as there is room for, at least two."""
    count, start = 2, sentences[position][0]
    while position + count < len(sentences) and sentences[position + count][1] - start <= room:
        count += 1
    return sentences[position : position + count]


def _from_another(corpus: Corpus, first: int, end: int, room: int, longest: int, random: np.random.Generator) -> Span:
    """Return sentences of up to ``room`` pieces, from a random place in any document but that of these sentences.

    Those of more than ``longest`` pieces are in several parts, as where pairs follow each other.
    """
    total = len(corpus.sentences.values)
    for _ in range(MOST_DRAWS):
        chosen = int(random.integers(total - (end - first)))
        chosen += end - first if chosen >= first else 0
        document = int(np.searchsorted(corpus.documents.values[:, 0], chosen, side="right"))
        start, stop = corpus.sentences.values[chosen].tolist()
        start += longest * int(random.integers(-(-(stop - start) // longest)))
        last = start
        for _, after in _sentences(corpus, chosen, int(corpus.documents.values[document, 0]), longest):
            if after > start + room:
                break
            last = max(last, after)
        if last > start:
            return start, last
    return start, min(start + room, stop)


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
