"""The contract of a task kind, in numpy alone: how rows are read, what the model sees, and how it is scored (`scorer`).

A **row** is what the user counts (one line of a file, one question). ``read_row`` checks a raw row and makes it
canonical: the same few fields whatever the file's headers. A row gives one or more **examples** (windows, choices,
candidates), the model's inputs. ``collate`` pads examples into a batch; ``decode`` reduces a batch's outputs to what is
needed of each example; ``predictions`` combines those into one prediction per row, which metrics compare with ``gold``.

A kind is one file with one such object, and one line in ``tasks/__init__.py``: what training, reports and exports need
to know of a kind it says itself. Functions of packages that kinds do not import are named as strings.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from compress.batch_arrays import ATTENTION_MASK, EXTRA_COLUMNS, INPUT_ARRAYS, BatchArray
from compress.errors import Problem
from compress.losses import OutputForm, TaskLoss
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Array, Arrays, Encode, Example, RawRow, Row, Script, TaskInput
from compress.tasks.parsing.columns import text_value
from compress.tasks.scorer import Scorer

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

    grouped_by: str | None = None
    """The field that several rows may share: these are of one role, so that none is scored on what was learnt."""

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


ProbedAs = Literal["text", "candidates", "words", "answer", "pair", "documents"]


class ModelInterface(ABC):
    """What a kind needs of a model, and what it makes of a batch's outputs."""

    head: str
    """Key of models/heads.py: the model class and its outputs (`sequence-classification`)."""
    problem: str
    """What outputs are trained for; a config's `problem_type` where transformers has it. The head of a checkpoint fits
    a task if it is the same. Some have their own rules of training (`train/core/auto_settings.py`)."""
    training_version: int = 1
    """Counts changes of how models of this kind learn: what was trained before is not used for it any more."""
    loss: TaskLoss
    """The loss on true labels: which outputs are compared with which arrays of a batch."""
    outputs: OutputForm
    """What the outputs are: how distillation compares those of two models."""
    batch_arrays: tuple[BatchArray, ...]
    """The arrays of a batch beyond the model's inputs, made of the fields of this kind's examples."""
    example: str = "row"
    """What one example is to a reader: a row, or an item that a row holds several of (a choice)."""
    probed_as: ProbedAs | None = None
    """What a linear probe asks of a layer (`probe/probe_tasks.py`): the label of a text, which candidate is right, the
    tag of a word, whether a word is part of the answer, the similarity of two texts, whether a document answers a
    query; None: nothing."""
    needs_attention: str = ""
    """Why a model without attention cannot do it; empty where it can."""
    needs_order: str = ""
    """Why a model that reads words in no order cannot do it; empty where it can."""
    searches: bool = False
    """Predictions are documents of the role (`data/splits/prepare_splits.py`), which are embedded once."""

    def output_count(self, task: TaskInfo) -> int:
        """Return the number of outputs of the head: one per label, or a single one."""
        return max(1, len(task.labels))

    def keep_row_together(self, task: TaskInfo) -> bool:
        """Return whether a row's examples must share a training batch, because one loss covers all of them."""
        return False

    def arrays(self) -> Mapping[str, BatchArray]:
        """Return the declarations of all arrays that `collate` may produce, by name."""
        return {array.name: array for array in (*INPUT_ARRAYS, ATTENTION_MASK, *self.batch_arrays, *EXTRA_COLUMNS)}

    def collate(self, examples: Sequence[Example], pad_id: int) -> Arrays:
        """Return one padded batch: `input_ids`, `attention_mask`, `token_type_ids`, and an array per example field."""
        return collate(examples, (*INPUT_ARRAYS, *self.batch_arrays, *EXTRA_COLUMNS), pad_id)

    @abstractmethod
    def decode(self, outputs: Arrays, batch: Arrays, task: TaskInfo) -> list[Array]:
        """Reduce a batch's outputs to what predictions need, an array per example; ``batch`` is from `collate`.

        Outputs as long as texts are so never held for all rows.
        """

    def search(self, queries: Array, documents: Array, task: TaskInfo) -> Array:
        """For kinds that search: return the documents retrieved for each row, from the embeddings of both."""
        raise NotImplementedError


def collate(examples: Sequence[Example], arrays: Iterable[BatchArray], pad_id: int) -> Arrays:
    """Return the ``arrays`` whose fields the examples have, padded, and the attention mask."""
    fields = [array for array in arrays if array.source in examples[0]]
    batch = {
        array.name: stack_field([example[array.source] for example in examples], array, pad_id) for array in fields
    }
    if len(examples) == 1:
        return {**batch, ATTENTION_MASK.name: np.ones((1, len(examples[0]["input_ids"])), ATTENTION_MASK.dtype)}
    lengths = np.asarray([len(example["input_ids"]) for example in examples])
    mask = np.arange(lengths.max()) < lengths[:, None]
    return {**batch, ATTENTION_MASK.name: mask.astype(ATTENTION_MASK.dtype)}


def stack_field(values: Sequence[Any], array: BatchArray, pad_id: int) -> Array:
    """Return one field of all examples as an array, padded on the right if it is per token."""
    if array.per == "example":
        return np.asarray(values, dtype=array.dtype)
    return pad_rows(values, pad_id if array.fill is None else array.fill, array.dtype)


def pad_rows(rows: Sequence[Any], fill: float, dtype: DTypeLike) -> Array:
    """Return rows of different lengths as one array (rows, longest), padded on the right."""
    if len(rows) == 1:
        return np.array([rows[0]], dtype=dtype)
    padded = np.full((len(rows), max(map(len, rows), default=0)), fill, dtype=dtype)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    return padded


def token_fills(arrays: Iterable[BatchArray], pad_id: int) -> dict[str, int]:
    """Return the padding value of each array that is as long as the texts."""
    return {array.name: pad_id if array.fill is None else array.fill for array in arrays if array.per == "token"}


OUTPUTS = Script("the outputs for each text", each=("print(outputs)",))


class Kind(RowReader, ModelInterface, Scorer):
    """A kind reads rows, describes its model and scores predictions; code that needs one of these takes its part."""

    name: str
    defaults: Mapping[str, Any] = {}
    """Keys of a recipe's task that gives this kind and leaves them out, such as the columns of a common file."""
    answer_form: str = ""
    """`module:class` of what a service answers to label texts (`label/prompt_and_answer.py`); none: it cannot."""
    no_certainty: str = "its answer to one text is more than one decision with a probability"
    """Why `certainty` has no meaning, and so no cascade can be made; empty where it has."""
    confusion_note: str = ""
    """What a reader of the confusion matrix needs to know besides."""
    hub_pipeline: str
    """The Hugging Face Hub's name for what the kind does (`pipeline_tag`)."""
    sentence_transformers: Literal["", "SentenceTransformer", "CrossEncoder"] = ""
    """The class of sentence-transformers that predicts the same."""
    reads_lists: bool = False
    """A cell may hold a list of texts: words, choices, candidates."""
    unnamed_columns: tuple[str, ...] = ()
    """Columns that are read where rows have them, although a task does not name them."""
    reads_one_text: bool = False
    """An input to predict may hold one text where a row has two: it is embedded."""
    web_difference: str = ""
    """In what predictions of the web page (`export/web/page/tasks.js`) differ: `, without …`."""

    def in_windows(self, task: TaskInfo) -> bool:
        """Return whether long texts are read in windows: where the kind has an `overlap`, unless they are cut."""
        return "overlap" in self.settings and ("long" not in self.settings or task.long != "cut")

    def unit_name(self, task: TaskInfo) -> str:
        """Return what the model processes one of at a time: a window, or the kind's ``example``."""
        return "window" if self.in_windows(task) else self.example

    def script(self, task: TaskInfo) -> Script:
        """Return how a script without compress decides; by default it prints the outputs as they are."""
        return OUTPUTS
