"""What a task kind is: one object that knows columns, examples, batches, decoding and scores, in numpy alone.

A **row** is what the user counts (one line of a file, one question). ``read_row`` checks a raw row and makes it
canonical: the same few fields whatever the file's headers. A row gives one or more **examples** (windows, choices,
candidates), which is what the model sees. ``collate`` pads examples into arrays, ``answers`` turns model outputs back
into one answer a row, ``score`` compares answers with gold. What a kind cannot tell of its answers (it makes no
decisions, or gives no probabilities) it answers with None, and the report leaves that part out. Adding a kind is one
file with one such object, and one line in ``tasks/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from compress.folder import TaskInfo
from compress.recipe.schema import Task

Arrays = dict[str, NDArray[Any]]
Row = Mapping[str, Any]
"""A canonical row: the fields of `Kind.fields`, plain Python values."""
Example = dict[str, Any]
"""One model input: `input_ids` (a list of ints) and whatever else the kind needs, e.g. `label`, `token_type_ids`."""


@dataclass(frozen=True)
class Encoding:
    """The pieces of one text or text pair."""

    input_ids: list[int]
    token_type_ids: list[int]
    truncated: bool


Encode = Callable[[str, str | None, int], Encoding]
"""(text, second text or None, most pieces) -> pieces; made from a folder's tokenizer.json by `data/tokens.py`."""


@dataclass(frozen=True)
class Metric:
    """A score of a kind: its name, whether more is better, its scale and its floor (the score of knowing nothing)."""

    name: str
    larger_is_better: bool = True
    floor: float | None = None
    share_of_right: bool = False
    """It is the share of rows that ``Kind.correct`` calls right: then McNemar's test speaks for it."""
    needs_contrast: bool = True
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


class Kind(Protocol):
    """The contract; see the module's docstring."""

    name: str
    head: str
    """Key of models/heads.py: the model class and its outputs (`sequence-classification`)."""
    problem: str
    """The transformers `problem_type`, which chooses the task's own loss."""
    fields: tuple[str, ...]
    """Fields of a canonical row."""
    metrics: tuple[Metric, ...]
    """The first is the default primary one."""
    compared: tuple[str, ...]
    """Model outputs that soft-label distillation compares (`logits`)."""
    changeable: tuple[str, ...]
    """Fields whose text may change a little without changing the true answer; robustness is measured on them. Not those
    in which the answer is marked by place (a context with its answer's offset, words with a tag each)."""

    def labels(self, values: Iterable[Any], task: Task) -> tuple[str, ...]:
        """The classes in order, from the task or from the raw label values of train, a stream; empty for regression."""
        ...

    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """A canonical row, or a DataError that starts with ``where`` (`train.tsv, row 17`)."""
        ...

    def classes(self, row: Row) -> Sequence[int]:
        """Which of the labels, by place, are a row's answer; none for regression. Rows are counted a class by it."""
        ...

    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """What the model sees of one row."""
        ...

    def collate(self, examples: Sequence[Example], pad_id: int) -> Arrays:
        """One padded batch: input_ids, attention_mask, token_type_ids (int64) and, where examples have them, labels."""
        ...

    def answers(self, outputs: Arrays, counts: Sequence[int]) -> NDArray[Any]:
        """One answer a row; ``outputs`` run over examples and ``counts`` tells how many each row gave."""
        ...

    def gold(self, rows: Sequence[Row]) -> NDArray[Any]:
        """The true answers in the form that ``score`` compares."""
        ...

    def score(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> dict[str, float]:
        """All metrics; called on any subset of rows, so that intervals can be bootstrapped."""
        ...

    def correct(self, answers: NDArray[Any], gold: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether each row's decision is right, for McNemar's test; None where there is no decision."""
        ...

    def score_draws(
        self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo, times: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """All metrics on many resamples of the rows at once; ``times`` (draws, rows) tells how often each row counts.

        The same as ``score`` on the rows repeated so often (`draws.one_by_one`), which a kind may fall back on.
        """
        ...

    def class_counts(self, answers: NDArray[Any], gold: NDArray[Any], task: TaskInfo) -> ClassCounts | None:
        """What recall, precision and F1 of each class come from; None where there are no classes."""
        ...

    def same(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_] | None:
        """On which rows two models decide the same; None where there is no decision."""
        ...

    def distance(self, answers: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64] | None:
        """How far apart two models' answers to each row are, 0 for equal ones; None where that means nothing."""
        ...

    def confidence(self, answers: NDArray[Any], gold: NDArray[Any]) -> Confidence | None:
        """The probabilities behind the decisions; None where the answers hold none."""
        ...

    def readable(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """One JSON-able prediction a row, e.g. {"label": "positive", "probability": 0.98}."""
        ...

    def words(self, answers: NDArray[Any], task: TaskInfo) -> list[str]:
        """One answer a row for people to read (`positive (98 %)`); never the text of the row, for it is published."""
        ...

    def gold_words(self, gold: NDArray[Any], task: TaskInfo) -> list[str]:
        """The true answers in the same words."""
        ...
