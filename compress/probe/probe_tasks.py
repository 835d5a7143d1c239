"""The tasks of recipes as a probe asks them, one way for each way a kind can be probed (`Kind.probed_as`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.errors import DataError, UsageError, nearest
from compress.model_folder.model_info import TaskInfo
from compress.probe.probe_items import Answers, Corpus, ItemList, ProbeTask, text_words
from compress.tasks import kind_of
from compress.tasks.base import Row, TaskInput

if TYPE_CHECKING:
    from compress.data.splits.prepare_splits import PreparedData
    from compress.recipe.task_schema import Task

ANSWER, OTHER = "part of the answer", "another word"
SCORED, MOST_SCORED = 0.4, 2_000
"""Rows of select that are scored: as a share of those of train, and at most."""
MAX_WORDS = 20_000
"""Words of a task that are probed at most, of its train and held-out rows together."""


@dataclass(frozen=True)
class ProbeRows:
    """A sample of a task's rows, by the part they are used for."""

    info: TaskInfo
    fitted: Sequence[Row]
    scored: Sequence[Row]

    @property
    def parts(self) -> Iterator[tuple[bool, int, Row]]:
        """Yield (held out, number, row)."""
        for number, row in enumerate(self.fitted):
            yield False, number, row
        for number, row in enumerate(self.scored, len(self.fitted)):
            yield True, number, row

    def texts(self) -> list[tuple[bool, int, str]]:
        """Return the first text of each row (the sentence of words, the context of a question), for surface tasks."""
        kind = kind_of(self.info)
        place = 1 if kind.probed_as == "answer" else 0
        inputs = ((held_out, number, _several(kind.to_input(row))) for held_out, number, row in self.parts)
        return [(held_out, number, given[place]) for held_out, number, given in inputs]


def sample_rows(prepared: PreparedData, rows: int, seed: int) -> ProbeRows:
    """Return a sample of train and of select; of train alone where select only has numbers of documents."""
    random = np.random.default_rng(seed)
    train, most = prepared.rows("train"), min(MOST_SCORED, round(SCORED * rows))
    order = random.permutation(len(train))
    if kind_of(prepared.info.task_info).searches:
        scored = order[: min(most, len(order) // 5)].tolist()
        fitted = order[len(scored) : len(scored) + rows].tolist()
        return ProbeRows(prepared.info.task_info, [train[i] for i in fitted], [train[i] for i in scored])
    select = prepared.rows("select")
    chosen = random.permutation(len(select))[:most].tolist()
    fitted = [row for row in (train[i] for i in order[:rows].tolist()) if row.get("label", 0) is not None]
    return ProbeRows(prepared.info.task_info, fitted, [select[index] for index in chosen])


def task_of_rows(rows: ProbeRows, name: str, corpus: Corpus, seed: int) -> ProbeTask:
    """Return the task of a recipe as a probe asks it."""
    kind = kind_of(rows.info)
    if kind.probed_as is None:
        raise UsageError(f"{rows.info.kind} has no probe.")
    return _BY_KIND[kind.probed_as](rows, name, corpus, seed)


def _answers_of(rows: ProbeRows) -> Answers:
    if not rows.info.labels:
        return "number"
    return "labels" if isinstance(rows.fitted[0]["label"], (list, tuple)) else "classes"


def _text_task(rows: ProbeRows, name: str, corpus: Corpus, seed: int) -> ProbeTask:
    kind, items, answers = kind_of(rows.info), ItemList(), _answers_of(rows)
    for held_out, number, row in rows.parts:
        given = kind.to_input(row)
        text, pair = (given, None) if isinstance(given, str) else (given[0], given[1])
        items.add(held_out, number, (corpus.add_text(text, pair),), row["label"])
    return items.task(name, "text", answers, rows.info.labels)


def _candidate_task(rows: ProbeRows, name: str, corpus: Corpus, seed: int) -> ProbeTask:
    """Right candidates, and as many wrong ones of the same question: there may be a thousand."""
    kind, items, random = kind_of(rows.info), ItemList(), np.random.default_rng(seed)
    for held_out, number, row in rows.parts:
        question, *candidates = _several(kind.to_input(row))
        marked = [(float(str(target)) > 0, text) for text, target in zip(candidates, kind.targets(row), strict=True)]
        right, wrong = ([text for is_right, text in marked if is_right == wanted] for wanted in (True, False))
        drawn = random.permutation(len(wrong))[: len(right)].tolist()
        for text, target in [*((text, 1) for text in right), *((wrong[index], 0) for index in drawn)]:
            items.add(held_out, number, (corpus.add_text(question, text),), target)
    return items.task(name, "text", "classes", ("wrong", "right"))


def _several(given: TaskInput) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def _word_task(rows: ProbeRows, name: str, corpus: Corpus, seed: int) -> ProbeTask:
    tags = ((held_out, number, row["words"], row["label"]) for held_out, number, row in rows.parts)
    return tagged_task(tags, name, rows.info.labels, corpus, seed)


def tagged_task(
    rows: Iterable[tuple[bool, int, Sequence[str], Sequence[int]]],
    name: str,
    classes: Sequence[str],
    corpus: Corpus,
    seed: int,
) -> ProbeTask:
    """Return the task of a tag for each word."""
    items = ItemList()
    for held_out, number, words, tags in rows:
        text = corpus.add_text(" ".join(words))
        for (start, end), word, tag in zip(word_spans(words), words, tags, strict=True):
            items.add(held_out, number, (text, start, end), tag, word.lower())
    return items.task(name, "word", "classes", classes, MAX_WORDS, seed, corpus)


def word_spans(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first character and the end of each word in these words joined by spaces."""
    start = 0
    for word in words:
        yield start, start + len(word)
        start += len(word) + 1


def _answer_task(rows: ProbeRows, name: str, corpus: Corpus, seed: int) -> ProbeTask:
    """Words of the first answer, and as many others of the same text."""
    items, random = ItemList(), np.random.default_rng(seed)
    for held_out, number, row in rows.parts:
        if not row["answers"]:
            continue
        text = corpus.add_text(row["question"], row["context"])
        first, end = row["start"], row["start"] + len(row["answers"][0])
        spans = list(text_words(row["context"]))
        inside = [span for span in spans if span[0] < end and span[1] > first]
        others = [span for span in spans if span not in inside]
        drawn = random.permutation(len(others))[: len(inside)].tolist()
        for span, target in [*((span, 1) for span in inside), *((others[index], 0) for index in drawn)]:
            word = row["context"][slice(*span)].lower()
            items.add(held_out, number, (text, *span), target, word)
    return items.task(name, "word", "classes", (OTHER, ANSWER), MAX_WORDS, seed, corpus)


def _pair_task(rows: ProbeRows, name: str, corpus: Corpus, seed: int) -> ProbeTask:
    kind, items = kind_of(rows.info), ItemList()
    for held_out, number, row in rows.parts:
        one, other = _several(kind.to_input(row))
        items.add(held_out, number, (corpus.add_text(one), corpus.add_text(other)), row["label"])
    return items.task(name, "two texts", "number", ())


def _document_task(rows: ProbeRows, name: str, corpus: Corpus, seed: int) -> ProbeTask:
    """Each query with a document that answers it, and with one that answers another query."""
    items, random = ItemList(), np.random.default_rng(seed)
    known = [(held_out, number, row) for held_out, number, row in rows.parts if row.get("positives")]
    documents = [str(row["positives"][0]) for _, _, row in known]
    for held_out, number, row in known:
        query, other = corpus.add_text(row["query"]), documents[random.integers(len(documents))]
        items.add(held_out, number, (query, corpus.add_text(str(row["positives"][0]))), 1)
        if other not in row["positives"]:
            items.add(held_out, number, (query, corpus.add_text(other)), 0)
    return items.task(name, "two texts", "classes", ("another document", "answers the query"))


_BY_KIND = {
    "text": _text_task,
    "candidates": _candidate_task,
    "words": _word_task,
    "answer": _answer_task,
    "pair": _pair_task,
    "documents": _document_task,
}


def tags_of_column(
    task: Task, column: str, raw_rows: Iterable[tuple[bool, int, Mapping[str, Any], str]], corpus: Corpus, seed: int
) -> ProbeTask:
    """Return the task of a further column with a tag for each word (parts of speech), of any names."""
    from compress.tasks.parsing.bio_tags import parse_names, parse_words
    from compress.tasks.parsing.columns import column_value

    rows: list[tuple[bool, int, list[str], list[str]]] = []
    for held_out, number, values, where in raw_rows:
        words = list(parse_words(column_value(values, task.text[0], task, where), where))
        if column not in values:
            raise UsageError(f"--tags {column}: {where} has no such column{nearest(column, values)}.")
        tags = parse_names(values[column], f"the tags of '{column}'", where)
        if len(tags) != len(words):
            raise DataError(f"{where}: {len(words)} words and {len(tags)} tags in '{column}'.")
        rows.append((held_out, number, words, tags))
    classes = sorted({tag for held_out, _, _, tags in rows for tag in tags if not held_out})
    numbers = {tag: index for index, tag in enumerate(classes)}
    known = ((held, row, words, [numbers.get(tag, -1) for tag in tags]) for held, row, words, tags in rows)
    task_rows = (
        (held, row, words, tags)
        for held, row, words, tags in known
        if -1 not in tags  # a tag that train does not have
    )
    return tagged_task(task_rows, column, classes, corpus, seed)
