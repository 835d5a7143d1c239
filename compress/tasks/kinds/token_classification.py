"""A tag for each word: named entities, slots. Words are tagged in BIO or IOB1, and metrics count entities.

A word's prediction is that of its first token. Long sentences are read in windows; a word that is in two of them gets
the prediction of the one in which it is farther from the edge.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import IGNORED_LABEL, BatchArray
from compress.errors import DataError, Problem, UsageError, nearest
from compress.losses import OutputForm, TaskLoss
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import (
    Array,
    Arrays,
    Baseline,
    Confidence,
    ConfusionCounts,
    Encode,
    Example,
    Metric,
    Row,
    Rows,
    Script,
    TaskInput,
)
from compress.tasks.kind import Kind
from compress.tasks.kinds.text_kind import as_tuple, check_finite, model_output
from compress.tasks.metrics import (
    ClassCounts,
    Scores,
    Weights,
    count_pairs,
    macro_f1,
    micro_f1,
    safe_divide,
    weighted_means,
)
from compress.tasks.parsing import bio_tags
from compress.tasks.parsing.bio_tags import (
    OUTSIDE,
    PAD_TAG,
    Tags,
    cell_tags,
    is_tag,
    is_word,
    parse_tagged_words,
    parse_words,
)
from compress.tasks.parsing.columns import SKIP_HINT, column_value, label_columns
from compress.tasks.parsing.labels import UnknownClass, label_indices

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task

WORD = np.dtype([("word", np.int32), ("tag", np.int16), ("probability", np.float32), ("margin", np.int16)])
"""What is stored of a word's first token; `margin` is its distance from the nearer end of its window."""
PREDICTION = np.dtype([("tag", np.int16), ("probability", np.float32)])
"""A word's prediction; probability 0 where the model did not see the word, which is then O."""


class TokenClassification(Kind):
    """Predictions are tags with their probability (rows, words of the longest row); after a row's end the tag is -1."""

    name = "token_classification"
    answer_fields = ("tags", "entities")
    head = "token-classification"
    probed_as = "words"
    problem = "token_classification"
    needs_order = "a word's tag depends on the words around it"
    loss = TaskLoss("compress.losses.task.token_ce:token_ce")
    outputs = OutputForm("compress.losses.tensor_ops.logit_views:token_view", "softmax")
    hub_pipeline = "token-classification"
    web_difference = ", without `entities`"
    fields = ("words", "label")
    baseline = Baseline("a bag of words around each word", "compress.measure.baselines.word_tags:word_tags")
    metrics: tuple[Metric, ...] = (
        *map(Metric, ("f1", "precision", "recall", "macro_f1")),
        Metric("accuracy", needs_varied_labels=False),
        Metric("sentence_accuracy", is_accuracy=True, needs_varied_labels=False),
    )
    batch_arrays = (
        BatchArray("word", "token", np.int64, fill=PAD_TAG),
        BatchArray("labels", "token", np.int64, fill=IGNORED_LABEL, field="label"),
    )
    defaults: Mapping[str, Any] = {"text": ["tokens"], "label": "tags"}
    text_columns = (1, 1)
    reads_lists = True
    settings = ("labels", "first_label", "overlap", "max_windows", "scheme")

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """Yield labels that are no tags, or mark nothing."""
        wrong = [label for label in task.labels or () if not is_tag(label)]
        if wrong:
            yield Problem(("task", "labels"), f"'{wrong[0]}' is no tag: expected O, or B- or I- with a type")
        elif task.labels is not None and not any(label != OUTSIDE for label in task.labels):
            yield Problem(("task", "labels"), "names no entity type: there is nothing to find")

    def labels(self, values: Iterable[Any], task: Task) -> tuple[str, ...]:
        """Return O, then B- and I- of each type by name, whichever of the two train or the recipe has."""
        seen = set(task.labels or ()) or {tag for value in values for tag in cell_tags(value, task)}
        tags = {tag for tag in seen if is_tag(tag)} - {OUTSIDE}
        if not tags and seen <= {OUTSIDE}:
            raise DataError("no word of train is tagged as anything but O: there is nothing to learn.")
        # Invalid tags are reported with their row and line when the rows are read.
        if tags and task.scheme == "bio" and not any(tag.startswith(bio_tags.BEGIN) for tag in tags):
            hint = "task.scheme: iob1 reads files that write B- only between two entities of one type"
            raise DataError("no tag of train begins with B-, so adjacent entities cannot be separated.", hint=hint)
        return bio_tags.tag_names(sorted({tag[2:] for tag in tags}))

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Return the words, and each one's tag as its index in ``labels``.

        Predictions are as wide as the longest row, so a row with more words than all windows can hold is refused.
        """
        answer = column_value(raw, label_columns(task)[0], task, where)
        words, tags = parse_tagged_words(column_value(raw, task.text[0], task, where), answer, task, where)
        _check_length(words, task, where)
        known = label_indices(labels)
        unknown = next((tag for tag in tags if tag not in known), None)
        if unknown is not None:
            source = "train" if task.labels is None else "the recipe's labels"
            message = f"{where}: the tag '{unknown}' is not among those of {source}{nearest(unknown, labels)}."
            raise UnknownClass(message, unknown)
        tags = bio_tags.from_iob1(tags) if task.scheme == "iob1" else tags
        return {"words": words, "label": [known[tag] for tag in tags]}

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> tuple[str, ...]:
        """Return the words."""
        words = parse_words(column_value(raw, task.text[0], task, where), where)
        _check_length(words, task, where)
        return tuple(words)

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """Return no entity."""
        return {"label": [0] * len(row["words"])}

    def targets(self, row: Row) -> Iterable[Hashable]:
        """Return the tags of its words."""
        return row["label"]

    def row_classes(self, row: Row) -> Sequence[int]:
        """Return the distinct types of its entities."""
        return sorted({(tag - 1) // 2 for tag in row["label"] if tag})

    def class_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the entity types."""
        return bio_tags.type_names(labels)

    def to_input(self, row: Row) -> TaskInput:
        """Return the words, separated by spaces."""
        return " ".join(row["words"])

    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """Return the words of a text, split at white space; or the words themselves."""
        words = given.split() if isinstance(given, str) else list(as_tuple(given))
        if not words or not all(map(is_word, words)):
            raise UsageError(f"{task.name} reads a text, or its words without white space in them; got {given!r}.")
        return {"words": words}

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """Return one example per window; each first token of a word has the word's index in the row, and its tag."""
        windows = encode.windows(" ".join(row["words"]), None, task.max_length, task.overlap, task.max_windows)
        spans = [np.asarray(window.spans, np.int64).reshape(-1, 2) for window in windows]
        examples: list[Example] = []
        for window, word in zip(windows, first_tokens(spans, row["words"]), strict=True):
            tags = row.get("label")
            label = None if tags is None else [IGNORED_LABEL if index < 0 else tags[index] for index in word]
            examples.append(window.example(word=word, label=label))
        return examples

    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[Array]:
        """Return the most probable tag of each word's first token, with its probability."""
        line, position = np.nonzero(batch["word"] >= 0)
        every = model_output(outputs, "logits", (None, None, self.output_count(task)), None)
        check_finite(np.where(batch["word"][..., None] >= 0, every, 0.0), "rows")
        logits = every[line, position]
        words = np.zeros(len(line), WORD)
        words["word"] = batch["word"][line, position]
        words["tag"] = logits.argmax(axis=-1)
        words["probability"] = 1.0 / np.exp(logits - logits.max(axis=-1, keepdims=True)).sum(axis=-1)
        words["margin"] = np.minimum(position, batch["attention_mask"].sum(axis=1)[line] - 1 - position)
        return np.split(words, np.searchsorted(line, np.arange(1, len(batch["word"]))))

    def predictions(self, decoded: Sequence[Array], counts: Sequence[int], rows: Rows, task: TaskInfo) -> Array:
        """Return tags and probabilities (rows, most words); words that the model did not see are O."""
        predictions = np.zeros((len(rows), _most_words(rows)), PREDICTION)
        parts = iter(decoded)
        for line, row, count in zip(predictions, rows, counts, strict=True):
            line["tag"][len(row["words"]) :] = PAD_TAG
            words = np.concatenate(list(islice(parts, count)))
            # Of two windows with the same word, the one with the larger margin is written last and stays.
            words = words[np.argsort(words["margin"], kind="stable")]
            for field in ("tag", "probability"):
                line[field][words["word"]] = words[field]
        return predictions

    def gold(self, rows: Rows) -> Array:
        """Return the true tags (rows, most words), -1 after each row's end."""
        gold = np.full((len(rows), _most_words(rows)), PAD_TAG, np.int16)
        for line, row in zip(gold, rows, strict=True):
            line[: len(row["label"])] = row["label"]
        return gold

    def has_varied_labels(self, gold: Array) -> bool:
        """Return whether there is any entity: sentences without one have the same label, however long they are."""
        return bool((gold > 0).any())

    def weighted_scores(self, predictions: Array, gold: Array, task: TaskInfo, weights: Weights) -> dict[str, Scores]:
        """Return F1, precision and recall over all entities, the mean F1 of types, the shares of words and rows right.

        Undefined scores are 0.
        """
        counts = self.weighted_class_counts(predictions, gold, task, weights)
        hits, predicted, true = (each.sum(axis=1) for each in (counts.hits, counts.predicted, counts.true))
        right_words = ((predictions["tag"] == gold) & (gold >= 0)).sum(axis=1)
        return {
            "f1": micro_f1(counts),
            "precision": safe_divide(hits, predicted),
            "recall": safe_divide(hits, true),
            "macro_f1": macro_f1(counts),
            "accuracy": safe_divide(weights @ right_words, weights @ (gold >= 0).sum(axis=1)),
            **weighted_means({"sentence_accuracy": self.correct(predictions, gold)}, weights),
        }

    def weighted_class_counts(self, predictions: Array, gold: Array, task: TaskInfo, weights: Weights) -> ClassCounts:
        """Return the entities of each type."""
        counts = bio_tags.entity_counts(predictions["tag"], gold, len(task.labels) // 2)
        return ClassCounts(*(weights @ each for each in counts))

    def confusion(self, predictions: Array, gold: Array, task: TaskInfo) -> ConfusionCounts:
        """Return the types of words, O included, whatever begins an entity."""
        names, words = (OUTSIDE, *self.class_names(task.labels)), gold >= 0
        true, predicted = ((tags[words] + 1) // 2 for tags in (gold, predictions["tag"]))
        return ConfusionCounts(names, count_pairs(true, predicted, len(names)), "words")

    def correct(self, predictions: Array, gold: Array) -> NDArray[np.bool_]:
        """Return whether every tag of a row is right."""
        return (predictions["tag"] == gold).all(axis=-1)

    def same_decision(self, predictions: Array, others: Array) -> NDArray[np.bool_]:
        """Return where all words of a row have the same tags."""
        return self.correct(predictions, others["tag"])

    def distance(self, predictions: Array, others: Array) -> NDArray[np.float64]:
        """Return the mean over a row's words of the difference in probability, 1 where the tags differ; 0 to 1."""
        moved = np.abs(predictions["probability"].astype(np.float64) - others["probability"])
        distance = np.where(predictions["tag"] == others["tag"], moved, 1.0)
        return safe_divide(distance.sum(axis=1), (predictions["tag"] >= 0).sum(axis=1))

    def confidence(self, predictions: Array, gold: Array) -> Confidence:
        """Return a decision for each word that the model saw."""
        row, word = np.nonzero((gold >= 0) & (predictions["probability"] > 0))
        seen = predictions[row, word]
        return Confidence(row, seen["probability"].astype(np.float64), seen["tag"] == gold[row, word])

    def script(self, task: TaskInfo) -> Script:
        """Print the tag of each word's first token."""
        lines = (
            "tokens = [(text[:end].rstrip().count(' '), text[start:end].strip()) for start, end in encoding.offsets]",
            "tags = {word: row.argmax() for (word, token), row in zip(tokens[::-1], outputs[0][0][::-1]) if token}",
            "print([labels[tags[word]] for word in sorted(tags)])",
        )
        loop = 'for text in (" ".join(text.split()) for text in sys.argv[1:]):'
        return Script("the tag of each word of each text", lines, loop=loop, labels=True)

    def to_json(self, predictions: Array, task: TaskInfo) -> list[dict[str, Any]]:
        """Return each word's tag; and the entities by word, counted from 0, with their least word probability."""
        rows = []
        for line, spans in zip(predictions, _row_entities(predictions["tag"], task), strict=True):
            least = [float(line["probability"][start:end].min()) for _, start, end in spans]
            entities = [
                {"type": kind, "start": start, "end": end, "probability": probability}
                for (kind, start, end), probability in zip(spans, least, strict=True)
            ]
            rows.append({"tags": [task.labels[tag] for tag in line["tag"] if tag >= 0], "entities": entities})
        return rows

    def describe(self, predictions: Array, task: TaskInfo) -> list[str]:
        """Return `artist 2-3, album 5`: the words of each entity, counted from 1."""
        return self.describe_gold(predictions["tag"], task)

    def describe_gold(self, gold: Array, task: TaskInfo) -> list[str]:
        """Return `artist 2-3, album 5`."""
        return [", ".join(map(_describe_entity, spans)) or "none" for spans in _row_entities(gold, task)]

    def describe_in_full(self, predictions: Array, rows: Rows, task: TaskInfo) -> list[str]:
        """Return `artist: New Order, album: Technique`."""
        return self.describe_gold_in_full(predictions["tag"], rows, task)

    def describe_gold_in_full(self, gold: Array, rows: Rows, task: TaskInfo) -> list[str]:
        """Return `artist: New Order, album: Technique`."""
        every = zip(_row_entities(gold, task), rows, strict=True)
        return [
            ", ".join(f"{kind}: {' '.join(row['words'][start:end])}" for kind, start, end in spans) or "none"
            for spans, row in every
        ]


def _check_length(words: Sequence[str], task: Task, where: str) -> None:
    """Refuse a sentence that does not fit into all of its windows."""
    if len(words) > task.max_windows * task.max_length:
        raise DataError(
            f"{where}: the sentence has {len(words):,} words, more than the tokens of all its windows "
            f"({task.max_windows} of {task.max_length}).",
            hint=f"cut it into sentences, or set a greater task.max_windows; {SKIP_HINT}",
        )


def first_tokens(spans: Sequence[NDArray[np.int64]], words: Sequence[str]) -> Iterator[list[int]]:
    """Yield for each window, per token, the word that it is the first token of, else -1.

    A token belongs to the word of its last character, whatever the tokenizer does with the space before. A window may
    begin in the middle of a word: its first token is then not the word's.
    """
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    ends = np.cumsum(lengths + 1) - 1
    token_words = [_word_index(window, ends - lengths, ends) for window in spans]
    earliest = np.full(len(words), ends[-1])
    for window, word in zip(spans, token_words, strict=True):
        np.minimum.at(earliest, word[word >= 0], window[word >= 0, 0])
    for window, word in zip(spans, token_words, strict=True):
        first = (word >= 0) & (window[:, 0] == earliest[word])
        first[1:] &= word[1:] != word[:-1]
        yield np.where(first, word, PAD_TAG).tolist()


def _word_index(spans: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the word of each token; -1 for special tokens, and for those that hold only the space between words."""
    last = spans[:, 1] - 1
    word = np.minimum(np.searchsorted(ends, last, side="right"), len(ends) - 1)
    return np.where((spans[:, 1] > spans[:, 0]) & (starts[word] <= last), word, PAD_TAG)


def _most_words(rows: Rows) -> int:
    return max((len(row["words"]) for row in rows), default=1)


def _row_entities(tags: Tags, task: TaskInfo) -> list[list[tuple[str, int, int]]]:
    """Return the entities of each row: type, first word and end."""
    types, rows = bio_tags.type_names(task.labels), [list[tuple[str, int, int]]() for _ in tags]
    for row, start, end, kind in zip(*(field.tolist() for field in bio_tags.entities(tags)), strict=True):
        rows[row].append((types[kind], start, end))
    return rows


def _describe_entity(entity: tuple[str, int, int]) -> str:
    kind, start, end = entity
    return f"{kind} {start + 1}" if end == start + 1 else f"{kind} {start + 1}-{end}"
