"""Hard negatives: documents that share most words with a query and are not known to answer it.

In-batch negatives are mostly about something else, and telling those apart teaches little. Of the documents that BM25
ranks first for a query, those that no row names as its answer are close and (mostly) wrong (Karpukhin et al., "Dense
Passage Retrieval for Open-Domain Question Answering", 2020). Some may be right all the same: the more are taken, the
more of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compress.data.bm25 import Bm25
from compress.data.splits.corpus import text_digest
from compress.data.splits.row_store import RowWriter, StoredRows, index_file, rows_file
from compress.tasks.base import Row

FOUND_TOGETHER = 1 << 20
"""Documents found that are held in memory at a time, at most (12 MB)."""


class Known(NamedTuple):
    """What the rows say of documents and queries, each text by its first row; queries go by their digest."""

    places: Sequence[int]
    """The row in which each document first stands."""
    answers: Mapping[bytes, set[int]]
    """The documents that answer each query."""
    asking: Mapping[bytes, int]
    """The first row of each query that has no negatives."""


def add_hard_negatives(folder: Path, role: str, count: int) -> float:
    """Give every row of a role that has no negatives ``count`` of them, or as many as share a word with its query.

    How many a row has then, given ones included, is told: the mean.
    """
    aside, rows = f"{role}-mined", StoredRows(folder, role)
    found = 0
    with RowWriter(folder, aside) as writer:
        for row in with_hard_negatives(rows, count):
            writer.add(row)
            found += len(row["negatives"])
    for place in (rows_file, index_file):
        place(folder, aside).replace(place(folder, role))
    return found / len(rows)


def with_hard_negatives(rows: Sequence[Row], count: int) -> Iterator[Row]:
    """The rows, those without negatives with the ``count`` best of the other rows' positives by BM25, best first."""
    known = _known(rows)
    wrong = dict(_wrong(rows, known, count))
    for row in rows:
        if row["negatives"]:
            yield row
        else:
            numbers = wrong[text_digest(row["query"])]
            yield {**row, "negatives": [_text(rows[known.places[number]]) for number in numbers]}


def _wrong(rows: Sequence[Row], known: Known, count: int) -> Iterator[tuple[bytes, list[int]]]:
    """Of each query that asks, the ``count`` best documents that share a word with it and are not known as answers."""
    index = Bm25(_text(rows[place]) for place in known.places)
    for most, queries in _alike(known).items():
        # So many of the best may be right that as many wrong ones must be left behind them.
        asked = count + most
        for some in _parts(queries, max(1, FOUND_TOGETHER // asked)):
            every, scores = index.top([rows[known.asking[query]]["query"] for query in some], asked)
            for query, best, values in zip(some, every.tolist(), scores.tolist(), strict=True):
                right = known.answers[query]
                pairs = zip(best, values, strict=True)
                yield query, [number for number, value in pairs if value > 0 and number not in right][:count]


def _alike(known: Known) -> dict[int, list[bytes]]:
    """Queries with similar numbers of answers together, by the most that any of them may have: a power of two."""
    found = defaultdict[int, list[bytes]](list)
    for query in known.asking:
        found[1 << (len(known.answers[query]) - 1).bit_length()].append(query)
    return found


def _parts(queries: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (queries[start : start + size] for start in range(0, len(queries), size))


def _known(rows: Sequence[Row]) -> Known:
    places, numbers = list[int](), dict[bytes, int]()
    answers, asking = defaultdict[bytes, set[int]](set), dict[bytes, int]()
    for place, row in enumerate(rows):
        query, document = text_digest(row["query"]), text_digest(_text(row))
        if document not in numbers:
            numbers[document] = len(places)
            places.append(place)
        answers[query].add(numbers[document])
        if not row["negatives"]:
            asking.setdefault(query, place)
    return Known(places, answers, asking)


def _text(row: Row) -> str:
    """The document that answers a row of train, which has exactly one."""
    return str(row["positives"][0])
