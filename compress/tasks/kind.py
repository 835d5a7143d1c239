"""What a task kind is: one object that knows columns, examples, batches, decoding and scores, in numpy alone.

A **row** is what the user counts (one line of a file, one question). ``read_row`` checks a raw row and makes it
canonical: the same few fields whatever the file's headers. A row gives one or more **examples** (windows, choices,
candidates), which is what the model sees. ``collate`` pads examples into arrays, ``answers`` turns model outputs back
into one answer a row, ``score`` compares answers with gold. Adding a kind is one file with one such object, and one
line in ``tasks/__init__.py``.
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

    def readable(self, answers: NDArray[Any], task: TaskInfo) -> list[dict[str, Any]]:
        """One JSON-able prediction a row, e.g. {"label": "positive", "probability": 0.98}."""
        ...
