"""Reading: from raw rows to canonical rows, and from canonical rows to examples."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compress.errors import Problem
from compress.model_info import TaskInfo
from compress.tasks.base import Encode, Example, RawRow, Row, TaskInput
from compress.tasks.parsing.columns import text_value

if TYPE_CHECKING:
    from compress.recipe.task_schema import Task


class RowReader(ABC):
    """How a kind reads rows. What is not abstract holds for most kinds."""

    fields: tuple[str, ...]
    """Fields of a canonical row."""
    label_fields: tuple[str, ...] = ("label",)
    """Fields of a canonical row that hold its label."""
    perturbable: tuple[str, ...] = ()
    """Fields whose text may change a little without changing the label; robustness is measured on them. Not those in
    which the label is marked by position (a context with its answer's offset, words with a tag each)."""
    text_columns: tuple[int, int | None] = (1, 2)
    """Fewest and most columns of text; None: any number."""
    is_variadic: bool = False
    """An input may hold any number of texts: the first one, and those that are read with it."""
    needs_every_text: bool = False
    """An input of which one text is empty has no answer, as one of which all are."""
    max_label_columns: int | None = 1
    """Most columns that a label may take; None: any number."""
    settings: tuple[str, ...] = ()
    """The settings of a recipe's task that this kind reads beyond those that all kinds read; a recipe that
    sets one which its kind does not read is refused."""
    answer_fields: tuple[str, ...]
    """Fields of a prediction as `to_json` returns it."""
    exclusive: bool = False
    """Each row has exactly one class, so the probabilities of all classes sum to one."""

    def setting_problems(self, task: Task) -> Iterator[Problem]:
        """Yield the invalid settings of a task, beyond what is checked for all kinds; paths start at `task`."""
        return iter(())

    def labels(self, values: Iterable[Any], task: Task) -> tuple[str, ...]:
        """Return the classes in order, from the task or from the raw label values of train; none by default."""
        return ()

    def group_lines(self, rows: Iterator[RawRow], task: Task, labelled: bool = True) -> Iterator[RawRow]:
        """Combine raw rows that span several lines (a question's candidates); by default a line is a row.

        Rows that are not ``labelled`` need no label columns.
        """
        return rows

    @abstractmethod
    def read_row(self, raw: Mapping[str, Any], task: Task, labels: tuple[str, ...], where: str) -> dict[str, Any]:
        """Return a canonical row, or raise a DataError that starts with ``where`` (`train.tsv, row 17`)."""

    def parse_input(self, raw: Mapping[str, Any], task: Task, where: str) -> TaskInput:
        """Return the input of a raw row without its label; `from_input` makes an unlabelled row of it."""
        return tuple(text_value(raw, name, task, where) for name in task.text)

    def placeholder_label(self, row: Row, task: TaskInfo) -> Row:
        """Return label fields for a row without a label that shares a batch with labelled ones; losses ignore them."""
        return {"label": 0}

    def argmax_label(self, probabilities: Sequence[float]) -> Any:
        """For kinds that read `soft_labels`: return the label that these class probabilities amount to."""
        raise NotImplementedError

    def targets(self, row: Row) -> Iterable[Hashable]:
        """Return what a model learns to distinguish in this row; train must hold at least two different ones.

        By default the row's label; for kinds whose rows hold several, each of them.
        """
        return [json.dumps([row.get(name) for name in self.label_fields])]

    def row_classes(self, row: Row) -> Sequence[int]:
        """Return the indices into ``class_names`` of a row's classes; rows are counted per class by it."""
        return ()

    def class_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the classes scores are broken down by: the labels, or entity types."""
        return labels

    @abstractmethod
    def to_input(self, row: Row) -> TaskInput:
        """Return the input that `predict` would be given for this row."""

    @abstractmethod
    def from_input(self, given: TaskInput, task: TaskInfo) -> Row:
        """Return a row without a label, or raise a UsageError that says what the task reads."""

    def is_empty(self, given: TaskInput) -> bool:
        """Return whether an input holds nothing to predict from: white space alone, or in one text where it needs all.

        Values that are no texts are not empty: `from_input` refuses them.
        """
        texts: Sequence[Any] = given if isinstance(given, (tuple, list)) else (given,)
        blank = [isinstance(text, str) and not text.strip() for text in texts]
        return any(blank) and (self.needs_every_text or all(blank))

    def empty_answer(self, given: TaskInput) -> dict[str, Any]:
        """Return the prediction of an empty input: every field, without a value."""
        return dict.fromkeys(self.answer_fields)

    @abstractmethod
    def examples(self, row: Row, task: TaskInfo, encode: Encode) -> list[Example]:
        """Return the model inputs of one row: one, or one per window, choice or candidate."""

    def store_rows(self, row: Row, number: Callable[[str], int] | None) -> list[Row]:
        """For kinds that search documents: return a row as its role stores it, which may be several rows.

        Rows of train keep texts. Where there is ``number``, it adds a document to those of the role and returns its
        number, which is all that rows of select and test need.
        """
        raise NotImplementedError
