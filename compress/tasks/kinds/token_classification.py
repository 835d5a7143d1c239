"""A tag for each word: named entities, slots. Words are tagged in BIO or IOB1 (`tags.py`), scores count entities.

A word is answered by its first piece. Long sentences go in windows; a word that stands in two of them is answered by
the one in which it is farther from the edge.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError, ModelError, Problem, UsageError, nearest
from compress.model_info import TaskInfo
from compress.recipe.schema import Task
from compress.tasks.base import Arrays, ClassCounts, Confidence, Encode, Example, Kind, Metric, Row, TaskInput
from compress.tasks.kinds.candidate_kind import LEAVE_OUT
from compress.tasks.kinds.text_kind import collate_text, pad, parts_of
from compress.tasks.metrics.f1_mcc import f1_each, mean_of_present
from compress.tasks.parsing.bio_tags import (
    BEGINS,
    NOTHING,
    OUTSIDE,
    Tags,
    entities,
    entity_counts,
    from_iob1,
    is_tag,
    tag_names,
    type_names,
)
from compress.tasks.parsing.columns import label_columns, pick
from compress.tasks.parsing.tagged_sentences import is_whole, named_tags, tagged_words, words_in

UNLABELLED = -100
"""What stands for a label on pieces that have none; losses pass over it."""

PIECE = np.dtype([("word", np.int32), ("tag", np.int16), ("probability", np.float32), ("room", np.int16)])
"""What is kept of a word's first piece; `room` is how far it is from the nearer end of its window."""
ANSWER = np.dtype([("tag", np.int16), ("probability", np.float32)])
"""A word's answer; probability 0 where the model did not see the word, which is then O."""


class TokenClassification(Kind):
    """Answers are tags with their probability (rows, words of the longest row); behind a row's end the tag is -1."""

    name = "token_classification"
    head = "token-classification"
    problem = "token_classification"
    fields = ("words", "label")
    metrics: tuple[Metric, ...] = (
        Metric("f1", floor=0.0),
        Metric("precision", floor=0.0),
        Metric("recall", floor=0.0),
        Metric("macro_f1", floor=0.0),
        Metric("accuracy", needs_varied_labels=False),
        Metric("sentence_accuracy", floor=0.0, is_accuracy=True, needs_varied_labels=False),
    )
    columns = (1, 1)
    settings = ("labels", "first_label", "overlap", "max_windows", "scheme")

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """Labels that are no tags, or mark nothing."""
        wrong = [label for label in task.labels or () if not is_tag(label)]
        if wrong:
            yield Problem(("task", "labels"), f"'{wrong[0]}' is no tag: expected O, or B- or I- with a type")
        elif task.labels is not None and not any(label != OUTSIDE for label in task.labels):
            yield Problem(("task", "labels"), "names no type of entity: there is nothing to find")

    def labels(self, values: Iterable[Any], task: Task) -> tuple[str, ...]:
        """O, then B- and I- of each type by name, whichever of the two train or the recipe has."""
        seen = set(task.labels or ()) or {tag for value in values for tag in named_tags(value, task)}
        found = {tag for tag in seen if is_tag(tag)} - {OUTSIDE}
        if not found and seen <= {OUTSIDE}:
            raise DataError("no word of train is tagged as anything but O: there is nothing to learn.")
        # Tags that are none have a row and a line, and reading the rows will tell them.
        if found and task.scheme == "bio" and not any(tag.startswith(BEGINS) for tag in found):
            raise DataError(
                "no tag of train begins with B-, so where an entity begins beside another cannot be told.",
                hint="task.scheme: iob1 reads files that write B- only between two entities of one type",
            )
        return tag_names(sorted({tag[2:] for tag in found}))

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """The words, and each one's tag as its place in ``labels``.

        Answers are as wide as the longest row, so one of more words than windows can ever show is refused.
        """
        answer = pick(raw, label_columns(task)[0], task, where)
        words, tags = tagged_words(pick(raw, task.text[0], task, where), answer, task, where)
        _check_length(words, task, where)
        known = _places(labels)
        unknown = next((tag for tag in tags if tag not in known), None)
        if unknown is not None:
            source = "train" if task.labels is None else "the recipe's labels"
            raise DataError(f"{where}: the tag '{unknown}' is not among those of {source}{nearest(unknown, labels)}.")
        tags = from_iob1(tags) if task.scheme == "iob1" else tags
        return {"words": words, "label": [known[tag] for tag in tags]}

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> tuple[str, ...]:
        """The words."""
        words = words_in(pick(raw, task.text[0], task, where), where)
        _check_length(words, task, where)
        return tuple(words)

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """No entity."""
        return {"label": [0] * len(row["words"])}

    def targets(self, row: Row) -> Iterable[Hashable]:
        """The tags of its words."""
        tags: list[int] = row["label"]
        return tags

    def classes(self, row: Row) -> Sequence[int]:
        """The types of its entities, each once."""
        return sorted({(tag - 1) // 2 for tag in row["label"] if tag})

    def class_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """The types."""
        return type_names(labels)

    def to_input(self, row: Row) -> TaskInput:
        """The words with a space between each two."""
        return " ".join(row["words"])

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """The words of a text, parted by white space; or the words themselves."""
        words = given.split() if isinstance(given, str) else list(parts_of(given))
        if not words or not all(map(is_whole, words)):
            raise UsageError(f"{task.name} reads a text, or its words without white space in them; got {given!r}.")
        return {"words": words}

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """One example a window; each first piece of a word carries its place in the row, and its tag."""
        windows = encode.windows(" ".join(row["words"]), None, task.max_length, task.overlap, task.max_windows)
        spans = [np.asarray(window.spans, np.int64).reshape(-1, 2) for window in windows]
        examples: list[Example] = []
        for window, word in zip(windows, first_pieces(spans, row["words"]), strict=True):
            example = {"input_ids": window.input_ids, "token_type_ids": window.token_type_ids, "word": word}
            if row.get("label") is not None:
                example["label"] = [UNLABELLED if place < 0 else row["label"][place] for place in word]
            examples.append(example)
        return examples

    def collate(self, examples: Sequence[Example], pad_id: int) -> Arrays:
        """A padded batch; `word` and `labels` are (n, length), -1 and -100 on all but the first piece of each word."""
        arrays = {**collate_text(examples, pad_id), "word": pad([each["word"] for each in examples], NOTHING)}
        if "label" in examples[0]:
            arrays["labels"] = pad([each["label"] for each in examples], UNLABELLED)
        return arrays

    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[NDArray[Any]]:
        """The most probable tag of each word's first piece, with its probability."""
        line, place = np.nonzero(batch["word"] >= 0)
        logits = _checked(outputs["logits"], line, place, self.output_count(task))
        kept = np.zeros(len(line), PIECE)
        kept["word"] = batch["word"][line, place]
        kept["tag"] = logits.argmax(axis=-1)
        kept["probability"] = 1.0 / np.exp(logits - logits.max(axis=-1, keepdims=True)).sum(axis=-1)
        kept["room"] = np.minimum(place, batch["attention_mask"].sum(axis=1)[line] - 1 - place)
        return np.split(kept, np.searchsorted(line, np.arange(1, len(batch["word"]))))

    def predictions(
        self, decided: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], task: TaskInfo
    ) -> NDArray[Any]:
        """Tags and probabilities (rows, most words); words that the model did not see are O."""
        found = np.zeros((len(rows), _most_words(rows)), ANSWER)
        parts = iter(decided)
        for line, row, count in zip(found, rows, counts, strict=True):
            line["tag"][len(row["words"]) :] = NOTHING
            pieces = np.concatenate(list(islice(parts, count)))
            # Of two windows with the same word, the one in which it has more room is written last and stays.
            pieces = pieces[np.argsort(pieces["room"], kind="stable")]
            for field in ("tag", "probability"):
                line[field][pieces["word"]] = pieces[field]
        return found

    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """The true tags (rows, most words), -1 behind each row's end."""
        gold = np.full((len(rows), _most_words(rows)), NOTHING, np.int16)
        for line, row in zip(gold, rows, strict=True):
            line[: len(row["label"])] = row["label"]
        return gold

    def has_varied_labels(self, gold: NDArray[Any]) -> bool:
        """Whether there is any entity: sentences without one have the same answer, however long they are."""
        return bool((gold > 0).any())

    def score(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """F1, precision and recall over all entities, the mean F1 of types, the shares of words and of rows right."""
        once = self.weighted_scores(answers, gold, task, np.ones((1, len(gold))))
        return {name: float(values[0]) for name, values in once.items()}

    def weighted_scores(
        self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo, times: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """From the counts of each row and type; undefined scores are 0."""
        each = [times @ counts for counts in entity_counts(answers["tag"], gold, len(task.labels) // 2)]
        hits, decided, true = (counts.sum(axis=1) for counts in each)
        right = ((answers["tag"] == gold) & (gold >= 0)).sum(axis=1)
        return {
            "f1": f1_each(hits, decided, true),
            "precision": _share(hits, decided),
            "recall": _share(hits, true),
            "macro_f1": mean_of_present(f1_each(*each), each[1] + each[2]),
            "accuracy": _share(times @ right, times @ (gold >= 0).sum(axis=1)),
            "sentence_accuracy": _share(times @ self.correct(answers, gold), times.sum(axis=1)),
        }

    def correct(self, answers: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether every tag of a row is right."""
        right: NDArray[np.bool_] = (answers["tag"] == gold).all(axis=-1)
        return right

    def class_counts(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> ClassCounts | None:
        """Entities of each type."""
        return ClassCounts(
            *(counts.sum(axis=0) for counts in entity_counts(answers["tag"], gold, len(task.labels) // 2))
        )

    def same_decision(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Where all words of a row are tagged the same."""
        return self.correct(answers, others["tag"])

    def distance(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """The mean over a row's words of how far the probabilities of one tag differ, 1 where the tags do; 0 to 1."""
        moved = np.abs(answers["probability"].astype(np.float64) - others["probability"])
        apart = np.where(answers["tag"] == others["tag"], moved, 1.0)
        return _share(apart.sum(axis=1), (answers["tag"] >= 0).sum(axis=1))

    def confidence(self, answers: NDArray[Any], gold: NDArray[Any]) -> Confidence | None:
        """A decision for each word that the model saw."""
        row, word = np.nonzero((gold >= 0) & (answers["probability"] > 0))
        found = answers[row, word]
        return Confidence(row, found["probability"].astype(np.float64), found["tag"] == gold[row, word])

    def to_json(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """Each word's tag; and the entities by word, counted from 0, with the probability of their least sure word."""
        lines = zip(answers, _told(answers["tag"], task), strict=True)
        return [
            {
                "tags": [task.labels[tag] for tag in line["tag"] if tag >= 0],
                "entities": [
                    {
                        "type": kind,
                        "start": start,
                        "end": end,
                        "probability": float(line["probability"][start:end].min()),
                    }
                    for kind, start, end in found
                ],
            }
            for line, found in lines
        ]

    def describe(self, answers: NDArray[Any], task: TaskInfo) -> list[str]:
        """`artist 2-3, album 5`: the words of each entity, counted from 1."""
        return self.describe_gold(answers["tag"], task)

    def describe_gold(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """`artist 2-3, album 5`."""
        return [", ".join(map(_in_words, found)) or "none" for found in _told(gold, task)]


def _check_length(words: Sequence[str], task: Task, where: str) -> None:
    """Refuse a sentence of which windows can never show all."""
    if len(words) > task.max_windows * task.max_length:
        raise DataError(
            f"{where}: the sentence has {len(words):,} words, more than the pieces of all its windows "
            f"({task.max_windows} of {task.max_length}).",
            hint=f"cut it into sentences, or set a greater task.max_windows; {LEAVE_OUT}",
        )


def first_pieces(spans: Sequence[NDArray[np.int64]], words: Sequence[str]) -> Iterator[list[int]]:
    """For each piece of each window the word that it is the first piece of, else -1.

    A piece belongs to the word in which its last character lies, whatever the tokenizer makes of the space before. A
    window may begin in the middle of a word: what stands there is not the word's first piece.
    """
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    ends = np.cumsum(lengths + 1) - 1
    found = [_word_of(window, ends - lengths, ends) for window in spans]
    earliest = np.full(len(words), ends[-1])
    for window, word in zip(spans, found, strict=True):
        np.minimum.at(earliest, word[word >= 0], window[word >= 0, 0])
    for window, word in zip(spans, found, strict=True):
        first = (word >= 0) & (window[:, 0] == earliest[word])
        first[1:] &= word[1:] != word[:-1]
        yield np.where(first, word, NOTHING).tolist()


def _word_of(spans: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.intp]:
    """The word of each piece; -1 for special pieces, and for those that are nothing but the space between words."""
    last = spans[:, 1] - 1
    word = np.minimum(np.searchsorted(ends, last, side="right"), len(ends) - 1)
    return np.where((spans[:, 1] > spans[:, 0]) & (starts[word] <= last), word, NOTHING)


def _checked(logits: NDArray[Any], line: NDArray[np.intp], place: NDArray[np.intp], width: int) -> NDArray[np.float64]:
    """The logits of the chosen pieces; what stands on the others is nobody's answer."""
    if logits.shape[-1] != width:
        raise ModelError(f"the model gives {logits.shape[-1]} outputs a piece where this task expects {width}.")
    chosen = logits[line, place].astype(np.float64)
    broken = ~np.isfinite(chosen).all(axis=-1)
    if broken.any():
        told = f"{len(np.unique(line[broken]))} of {len(logits)} rows"
        raise ModelError(f"the model's output is not a number for {told}.")
    return chosen


@lru_cache(maxsize=8)
def _places(labels: tuple[str, ...]) -> dict[str, int]:
    return {label: place for place, label in enumerate(labels)}


def _most_words(rows: Sequence[Row]) -> int:
    return max((len(row["words"]) for row in rows), default=1)


def _share(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """``part`` of ``whole``, 0 of nothing."""
    zeros = np.zeros(np.shape(whole), np.float64)
    shares: NDArray[np.float64] = np.divide(part, whole, out=zeros, where=whole > 0)
    return shares


def _told(tags: Tags, task: TaskInfo) -> list[list[tuple[str, int, int]]]:
    """The entities of each row: type, first word and the one behind the last."""
    types, told = type_names(task.labels), [list[tuple[str, int, int]]() for _ in tags]
    for row, start, end, kind in zip(*(field.tolist() for field in entities(tags)), strict=True):
        told[row].append((types[kind], start, end))
    return told


def _in_words(entity: tuple[str, int, int]) -> str:
    kind, start, end = entity
    return f"{kind} {start + 1}" if end == start + 1 else f"{kind} {start + 1}-{end}"
