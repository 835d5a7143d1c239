"""What a task kind is: one object that knows columns, examples, batches, decoding and scores, in numpy alone.

A **row** is what the user counts (one line of a file, one question). ``read_row`` checks a raw row and makes it
canonical: the same few fields whatever the file's headers. A row gives one or more **examples** (windows, choices,
candidates), which is what the model sees. ``collate`` pads examples into arrays; ``decide`` makes of a batch's outputs
what is worth keeping of each example, so that outputs as long as texts are never held for all rows; ``answers`` turns
that into one answer a row, and ``score`` compares answers with gold. What a kind cannot tell of its answers (it makes
no decisions, or gives no probabilities) it answers with None, and the report leaves that part out. Adding a kind is one
file with one such object, and one line in ``tasks/__init__.py``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from compress.errors import Problem
from compress.model_info import TaskInfo
from compress.recipe.schema import Task
from compress.tasks.metrics.bootstrap_metrics import one_by_one
from compress.tasks.parsing.columns import text

Arrays = dict[str, NDArray[Any]]
Row = Mapping[str, Any]
"""A canonical row: the fields of `Kind.fields`, plain Python values."""
Example = dict[str, Any]
"""One model input: `input_ids` (a list of ints) and whatever else the kind needs, e.g. `label`, `token_type_ids`."""


BESIDE = ("labelled", "soft_labels")
"""What may stand in a row of train beside the fields of its kind, and goes into batches by these names: whether its
answer is the true one (a stand-in else), and the probabilities that somebody gave to the classes."""

TaskInput = str | tuple[str, ...]
"""What a user hands over to have it answered: one text, or several (a pair; a question and its choices)."""


class RawRow(NamedTuple):
    """One row as its source holds it."""

    where: str
    """`train.tsv, row 17 (line 18)`."""
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Encoding:
    """The pieces of one text or text pair."""

    input_ids: list[int]
    token_type_ids: list[int]
    truncated: bool
    spans: list[tuple[int, int]] | None = None
    """First character of each piece in the last text, and the one behind its last, without the white space around it;
    (-1, -1) for special pieces and those of another text. Only `Encode.windows` tells them."""


class Encode(Protocol):
    """Texts to pieces; made from a folder's tokenizer.json by `data/tokenizer.py`."""

    def __call__(self, text: str, pair: str | None, most: int) -> Encoding:
        """The pieces of a text or pair, special ones included, cut to ``most``."""
        ...

    def windows(self, text: str, pair: str | None, most: int, overlap: int, limit: int) -> list[Encoding]:
        """The last text in windows of up to ``most`` pieces, each with all of the first text where there are two.

        Neighbours share ``overlap`` pieces. There are ``limit`` windows at most; where more would be needed the last
        one is marked as truncated.
        """
        ...


@dataclass(frozen=True)
class Metric:
    """A score of a kind: its name, whether more is better, its scale and its floor (the score of knowing nothing)."""

    name: str
    larger_is_better: bool = True
    floor: float | None = None
    is_accuracy: bool = False
    """It is the share of rows that ``Kind.correct`` calls right: then McNemar's test speaks for it."""
    needs_varied_labels: bool = True
    """It tells nothing of rows whose true answers are all the same (a correlation, an F1)."""


@dataclass(frozen=True)
class ClassCounts:
    """For each class, in the order of the labels: found where it is, decided at all, and truly there."""

    hits: NDArray[np.int64]
    decided: NDArray[np.int64]
    true: NDArray[np.int64]


@dataclass(frozen=True)
class Confidence:
    """What a model said of its own decisions; a row may have one (its class) or many (each label, each word)."""

    row: NDArray[np.intp]
    """The row of each decision."""
    stated: NDArray[np.float64]
    """The probability that the model gave to what it decided."""
    right: NDArray[np.bool_]
    """Whether the decision was right."""


class Kind(ABC):
    """The contract; see the module's docstring. What is not abstract holds for most kinds."""

    name: str
    head: str
    """Key of models/heads.py: the model class and its outputs (`sequence-classification`)."""
    problem: str
    """What the task's own loss is called (`losses/__init__.py`): which outputs are compared with which labels, and how
    distillation compares two models' outputs."""
    fields: tuple[str, ...]
    """Fields of a canonical row."""
    metrics: tuple[Metric, ...]
    """The first is the default primary one."""
    perturbable: tuple[str, ...] = ()
    """Fields whose text may change a little without changing the true answer; robustness is measured on them. Not those
    in which the answer is marked by place (a context with its answer's offset, words with a tag each)."""
    label_fields: tuple[str, ...] = ("label",)
    """Fields of a canonical row that hold its answer."""
    columns: tuple[int, int | None] = (1, 2)
    """Least and most columns of text; None: any number."""
    is_variadic: bool = False
    """A row that is handed over may have any number of texts: the first one, and those that are read with it."""
    label_columns: int | None = 1
    """Most columns that an answer may stand in; None: any number."""
    settings: tuple[str, ...] = ()
    """The settings of a recipe's task that this kind reads beyond those of all kinds (listed in
    tasks/validate_task.py); where one is given that it does not read, the recipe is refused."""
    example: str = "row"
    """What one example is to a reader: a row, or what a row holds several of (a choice)."""
    exclusive: bool = False
    """Each row has one class, so that the probabilities of all classes make one."""
    searches: bool = False
    """Answers are found among the role's documents (`data/splits/prepare_splits.py`), which are embedded once."""

    # What is read.

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """What of a task's settings cannot be meant, beyond what holds for all kinds; paths start at `task`."""
        return iter(())

    def labels(self, values: Iterable[Any], task: Task) -> tuple[str, ...]:
        """The classes in order, from the task or from the raw label values of train, a stream; none by default."""
        return ()

    def group_lines(self, rows: Iterator[RawRow], task: Task, answered: bool = True) -> Iterator[RawRow]:
        """Raw rows of several lines put together (a question's candidates); by default a line is a row.

        Those that are not ``answered`` need no label columns.
        """
        return rows

    @abstractmethod
    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """A canonical row, or a DataError that starts with ``where`` (`train.tsv, row 17`)."""

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> TaskInput:
        """What a raw row asks, whatever its answer: `asked` makes a row without one of it."""
        return tuple(text(raw, name, task, where) for name in task.text)

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """What stands in the answer fields of a row without an answer where it shares a batch with rows that have one.

        Losses on true answers pass over it.
        """
        return {"label": 0}

    def argmax_label(self, probabilities: Sequence[float]) -> Any:
        """For kinds that read `soft_labels`: the answer that these probabilities of the classes come to."""
        raise NotImplementedError

    def targets(self, row: Row) -> Iterable[Hashable]:
        """What is learnt to be told apart in this row: if train has not two different ones there is nothing to learn.

        By default its answer; for kinds whose rows hold several answers, each of them.
        """
        return [json.dumps([row.get(name) for name in self.label_fields])]

    def classes(self, row: Row) -> Sequence[int]:
        """Which of ``class_names``, by place, are a row's answer. Rows are counted a class by it."""
        return ()

    def class_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """What scores are told apart by: the labels, or what they stand for (entity types)."""
        return labels

    @abstractmethod
    def to_input(self, row: Row) -> TaskInput:
        """What a user would hand over to have this row answered."""

    @abstractmethod
    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """A row without an answer, or a UsageError that says what the task reads."""

    # What the model sees and gives.

    def output_count(self, task: TaskInfo) -> int:
        """How many outputs the head has: one a label, or a single one."""
        return max(1, len(task.labels))

    def keep_row_together(self, task: TaskInfo) -> bool:
        """Whether the examples of a row must be in one batch while training, because one loss is about all of them."""
        return False

    def in_windows(self, task: TaskInfo) -> bool:
        """Whether long texts are seen in windows, and not cut at `max_length`."""
        return "overlap" in self.settings and ("long" not in self.settings or task.long != "cut")

    def unit_name(self, task: TaskInfo) -> str:
        """What the model answers one of at a time: a window where texts are seen in windows, else its `example`."""
        return "window" if self.in_windows(task) else self.example

    @abstractmethod
    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """What the model sees of one row."""

    @abstractmethod
    def collate(self, examples: Sequence[Example], pad_id: int) -> Arrays:
        """One padded batch: input_ids, attention_mask, token_type_ids (int64) and whatever else examples hold."""

    @abstractmethod
    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[NDArray[Any]]:
        """What of a batch's outputs is kept, an array an example; the batch is as `collate` made it."""

    @abstractmethod
    def predictions(
        self, decided: Sequence[NDArray[Any]], counts: Sequence[int], rows: Sequence[Row], task: TaskInfo
    ) -> NDArray[Any]:
        """One answer a row; ``counts`` tells how many of ``decided`` each row gave. No objects: it is kept."""

    def search(self, queries: NDArray[Any], documents: NDArray[Any], task: TaskInfo) -> NDArray[Any]:
        """For kinds that search: what each row found, from the embeddings of rows and documents."""
        raise NotImplementedError

    def store_rows(self, row: Row, number: Callable[[str], int] | None) -> list[Row]:
        """For kinds that search: a row as its role keeps it, which may be several.

        Rows that are learnt from keep texts; where there is ``number``, it writes a document down among those of the
        role and gives its number, which is all that rows to be answered need.
        """
        raise NotImplementedError

    def has_threshold(self, rows: Sequence[Row]) -> bool:
        """Whether what is decided on rows like these depends on a threshold, which is tuned on select."""
        return False

    def tune_threshold(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> TaskInfo:
        """The task with the thresholds that are best on ``answers`` to the rows of select; by default it has none."""
        return task

    def apply_threshold(self, answers: NDArray[Any], task: TaskInfo) -> NDArray[Any]:
        """The same answers, decided under the thresholds of ``task``."""
        return answers

    # What it is worth.

    @abstractmethod
    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """The true answers in the form that ``score`` compares; no objects."""

    def has_varied_labels(self, gold: NDArray[Any]) -> bool:
        """Whether the true answers of these rows differ, so that metrics which need it say something."""
        return bool((gold != gold[:1]).any())

    @abstractmethod
    def score(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """All metrics; called on any subset of rows, so that intervals can be bootstrapped."""

    def correct(self, answers: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether each row's decision is right, for McNemar's test; None where there is no decision."""
        return None

    def weighted_scores(
        self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo, times: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """All metrics on many resamples of the rows at once; ``times`` (draws, rows) tells how often each row counts.

        The same as ``score`` on the rows repeated so often, which is what this does: right for all and slow.
        """
        return one_by_one(lambda some, true: self.score(some, true, task), answers, gold, times)

    def class_counts(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> ClassCounts | None:
        """What recall, precision and F1 of each class come from, in the order of ``class_names``."""
        return None

    def same_decision(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_] | None:
        """On which rows two models decide the same; None where there is no decision."""
        return None

    def distance(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """How far apart two models' answers to each row are, 0 for equal ones; None where that means nothing."""
        return None

    def label_spread(self, gold: NDArray[Any], task: TaskInfo) -> float:
        """How far right answers lie apart in the measure of ``distance``; 1 where that is a share or a probability."""
        return 1.0

    def confidence(self, answers: NDArray[Any], gold: NDArray[Any]) -> Confidence | None:
        """The probabilities behind the decisions; None where the answers hold none."""
        return None

    # What is told.

    @abstractmethod
    def to_json(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """One JSON-able prediction a row, e.g. {"label": "positive", "probability": 0.98}."""

    @abstractmethod
    def describe(self, answers: NDArray[Any], task: TaskInfo) -> list[str]:
        """One answer a row for people to read (`positive (98 %)`); never the text of the row, for it is published."""

    @abstractmethod
    def describe_gold(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """The true answers in the same words."""
