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
from compress.data.documents import digest_of
from compress.data.store import Rows, RowWriter, index_file, rows_file
from compress.tasks.kind import Row

TOGETHER = 8192
"""Queries that are asked together."""


class Known(NamedTuple):
    """Which documents the rows name, and as answers to what."""

    places: Sequence[int]
    """The row in which each document first stands."""
    answers: Mapping[bytes, set[int]]
    """The documents that answer each query."""


def add_hard_negatives(folder: Path, role: str, count: int) -> None:
    """Give every row of a role that has no negatives ``count`` of them, or as many as share a word with its query."""
    aside = f"{role}-mined"
    with RowWriter(folder, aside) as writer:
        for row in with_hard_negatives(Rows(folder, role), count):
            writer.add(row)
    for place in (rows_file, index_file):
        place(folder, aside).replace(place(folder, role))


def with_hard_negatives(rows: Sequence[Row], count: int) -> Iterator[Row]:
    """The rows, those without negatives with the ``count`` best of the other rows' positives by BM25, best first."""
    known = _known(rows)
    index = Bm25(_text(rows[place]) for place in known.places)
    # So many of the best may be right that as many wrong ones must be left behind them.
    asked = count + max(map(len, known.answers.values()), default=0)
    for start in range(0, len(rows), TOGETHER):
        some = [rows[place] for place in range(start, min(start + TOGETHER, len(rows)))]
        every, scores = index.top([row["query"] for row in some], asked)
        for row, best, values in zip(some, every.tolist(), scores.tolist(), strict=True):
            right = known.answers[digest_of(row["query"])]
            wrong = [number for number, value in zip(best, values, strict=True) if value > 0 and number not in right]
            found = [_text(rows[known.places[number]]) for number in wrong[:count]]
            yield row if row["negatives"] else {**row, "negatives": found}


def _known(rows: Sequence[Row]) -> Known:
    places, numbers = list[int](), dict[bytes, int]()
    answers: defaultdict[bytes, set[int]] = defaultdict(set)
    for place, row in enumerate(rows):
        digest = digest_of(_text(row))
        if digest not in numbers:
            numbers[digest] = len(places)
            places.append(place)
        answers[digest_of(row["query"])].add(numbers[digest])
    return Known(places, answers)


def _text(row: Row) -> str:
    """The document that answers a row of train, which has exactly one."""
    return str(row["positives"][0])
