"""Packing: which sentences make up each training sequence.

Without pairs, sequences are runs of whole sentences that may go on in the next document, after a separator (RoBERTa's
FULL-SENTENCES, arXiv:1907.11692). With pairs, both parts are runs of sentences of one document each: half of the second
parts follow the first, the others are from another document (BERT, arXiv:1810.04805, appendix A.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from compress.errors import DataError
from compress.pretrain.text.corpus_pieces import Corpus, CorpusPart
from compress.storage.mapped_arrays import ArrayWriter

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
