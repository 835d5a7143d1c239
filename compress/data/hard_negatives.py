"""Hard negatives: documents that share most words with a query and are not known to answer it.

In-batch negatives are mostly about something else, and easy to distinguish. Of the documents that BM25 ranks first for
a query, those that no row names as its answer are close and (mostly) wrong (Karpukhin et al., "Dense Passage Retrieval
for Open-Domain Question Answering", 2020). Some may be right all the same: the more are taken, the more of them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compress.data.bm25 import Bm25
from compress.data.splits.row_store import RowWriter, StoredRows, index_file, rows_file, text_digest
from compress.storage.atomic_write import sync
from compress.tasks.base import Row


class KnownAnswers(NamedTuple):
    """The documents and queries of all rows, each text by its first row; queries by their digest."""

    first_rows: Sequence[int]
    """The first row of each document."""
    numbers: Mapping[bytes, int]
    """Each document by its digest: a query's own text may be a document too, the answer of another."""
    answers: Mapping[bytes, set[int]]
    """The documents that answer each query."""
    without_negatives: Mapping[bytes, int]
    """The first row of each query that has no negatives."""


def add_hard_negatives(folder: Path, role: str, count: int) -> float:
    """Add ``count`` negatives to every row of a role without any, or as many as share a word with its query.

    Returns the mean number of negatives per row, given ones included.
    """
    draft, rows = f"{role}-mined", StoredRows(folder, role)
    count_all = 0
    with RowWriter(folder, draft) as writer:
        for row in with_hard_negatives(rows, count):
            writer.add(row)
            count_all += len(row["negatives"])
    for file in (rows_file, index_file):
        sync(file(folder, draft))
        file(folder, draft).replace(file(folder, role))
    return count_all / len(rows)


def with_hard_negatives(rows: Sequence[Row], count: int) -> Iterator[Row]:
    """Yield the rows; those without negatives get the ``count`` best of other rows' positives by BM25, best first.

    None is the query's own text, which no model can keep apart from it.
    """
    known = _known_answers(rows)
    negatives = dict(_mine(rows, known, count))
    for row in rows:
        if row["negatives"]:
            yield row
        else:
            numbers = negatives[text_digest(row["query"])]
            yield {**row, "negatives": [_positive(rows[known.first_rows[number]]) for number in numbers]}


def _mine(rows: Sequence[Row], known: KnownAnswers, count: int) -> Iterator[tuple[bytes, list[int]]]:
    """Yield for each query without negatives the ``count`` best documents that are no known answers, nor the query."""
    index = Bm25(_positive(rows[row]) for row in known.first_rows)
    by_answers = defaultdict[int, list[bytes]](list)
    for query in known.without_negatives:
        by_answers[1 << (len(known.answers[query]) - 1).bit_length()].append(query)
    # Up to `most` of the best may be right, so that many more are retrieved.
    for most, queries in by_answers.items():
        texts = [rows[known.without_negatives[query]]["query"] for query in queries]
        documents, scores = index.top(texts, count + most + 1)
        for query, best, values in zip(queries, documents, scores, strict=True):
            right = {*known.answers[query], known.numbers.get(query)}
            wrong = [number for number in best[values > 0].tolist() if number not in right]
            yield query, wrong[:count]


def _known_answers(rows: Sequence[Row]) -> KnownAnswers:
    first_rows, numbers = list[int](), dict[bytes, int]()
    answers, without_negatives = defaultdict[bytes, set[int]](set), dict[bytes, int]()
    for index, row in enumerate(rows):
        query, document = text_digest(row["query"]), text_digest(_positive(row))
        if document not in numbers:
            numbers[document] = len(first_rows)
            first_rows.append(index)
        answers[query].add(numbers[document])
        if not row["negatives"]:
            without_negatives.setdefault(query, index)
    return KnownAnswers(first_rows, numbers, answers, without_negatives)


def _positive(row: Row) -> str:
    """Return the document that answers a row of train, which has exactly one."""
    return str(row["positives"][0])
