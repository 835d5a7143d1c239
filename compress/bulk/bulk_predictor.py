"""The answers to many rows at once: texts from the columns of a table, batches of similar length, answers as columns.

`BulkPredictor` is also what Ray Data calls (`Dataset.map_batches(BulkPredictor, …)`), and `spark_predictor` what Spark
does (`predict_batch_udf`).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compress.bulk.open_table import open_table, plain_values
from compress.data.encode import batches_by_length
from compress.errors import DataError, UsageError, nearest, pluralize
from compress.model_folder.model_info import TaskInfo
from compress.publish.pull import opened
from compress.runtime import default_placement
from compress.runtime.predictor import Placement
from compress.runtime.text_model import TextModel, answer_fields
from compress.tasks import kind_of
from compress.tasks.base import Example, Row, TaskInput
from compress.tasks.kind import Kind
from compress.tasks.parsing.columns import is_missing, parse_list

WINDOW_ROWS, WINDOW_TOKENS = 1024, 1 << 18
"""Rows that are sorted by length together: up to this number, or until they have so many tokens."""
BATCH_TOKENS = {"cpu": 512, "cuda": 1 << 14}
"""Tokens of a batch, padding included: what a core's cache holds runs fastest there, a GPU wants more."""
ERROR = "error"
"""The column that says why a row was not read, where such rows are kept."""

Answer = dict[str, Any]
Cells = Sequence[Any]
"""What a row holds in the columns of text."""


class Answers(NamedTuple):
    """The answers to rows, in their order."""

    answers: Sequence[Answer]
    faults: Mapping[int, str]
    """Why a row, by its index, could not be read: its answer is empty."""
    empty: int
    """Rows without text: their answers are empty too."""


class BulkPredictor:
    """A model that answers the rows of tables, and adds the answers as columns.

    It takes what it is given and returns the same: a list of mappings, a mapping of arrays (as Ray Data and Spark hand
    over), a pyarrow table, or a pandas frame. Loads its model once. A row without text has an empty answer.

    Example:
        >>> import compress
        >>> predict = compress.BulkPredictor("winner/cpu")  # doctest: +SKIP
        >>> predict([{"sentence": "a fine film", "id": 7}])  # doctest: +SKIP
        [{'sentence': 'a fine film', 'id': 7, 'label': 'positive', 'probability': 0.9969}]
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        text: str | Sequence[str] = (),
        prefix: str = "",
        probabilities: bool = False,
        batch: int | None = None,
        device: str | None = None,
        threads: int = 1,
    ) -> None:
        """Open the model of a folder.

        Args:
            folder: a winner, a variant, or any other model folder, or `PLACE/name` of a zoo, as `compress.open` has it.
            text: the columns of text; by default those of the task.
            prefix: goes before the names of the answer columns.
            probabilities: adds the probabilities of all classes.
            batch: texts that run together; by default as many as have the device's `BATCH_TOKENS`. Not where answers
                depend on it: these run as they were scored.
            device: `cpu` or `cuda`; by default the CPU, where the model runs on it.
            threads: of the CPU.
        """
        folder = opened(folder)
        placement = Placement(device, threads) if device else default_placement(folder)  # type: ignore[arg-type]
        self.model = TextModel.open(folder, placement)
        self.columns = text_columns(self.model.task, text)
        self.prefix = prefix
        if batch is not None and batch < 1:
            raise UsageError(f"a batch holds at least one text; got {batch}.")
        self._batch = self.model.batch if self.model.depends_on_batch else batch
        self._tokens = BATCH_TOKENS[placement.device]
        self.fields = answer_fields(self.model.task, len(self.columns), probabilities)
        """The columns that answers add, without the prefix."""
        self.adds_classes = self.model.adds_classes(self.fields)

    def __call__(self, table: Any) -> Any:
        """Return a table with its answer columns; a row that cannot be read is a DataError."""
        count, columns, rebuild = open_table(table)
        names = [name for name in self.names if name in columns]
        if names:
            raise UsageError(
                f"the table has a column '{names[0]}' already.", hint="prefix= goes before the names of the answers"
            )
        for name in self.columns:
            if count and name not in columns:
                raise UsageError(f"there is no column '{name}'{nearest(name, columns)}", hint="text= names the columns")
        cells = zip(*(columns[name]() for name in self.columns), strict=True) if count else iter(())
        found = self.answer(list(cells), [f"row {number}" for number in range(1, count + 1)])
        for index, fault in found.faults.items():
            raise DataError(f"row {index + 1}: {fault}")
        return rebuild({self.prefix + name: [answer[name] for answer in found.answers] for name in self.fields})

    @property
    def names(self) -> list[str]:
        """The names of the answer columns."""
        return [self.prefix + name for name in self.fields]

    def batches(self, lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return which examples run together, by their lengths."""
        if self._batch is not None:
            return batches_by_length(lengths, self._batch)
        order = np.argsort(lengths, kind="stable")
        batches, start = [], 0
        for end in range(1, len(order) + 1):
            if end == len(order) or (end + 1 - start) * lengths[order[end]] > self._tokens:
                batches.append(order[start:end])
                start = end
        return batches

    def answer(self, cells: Sequence[Cells], origins: Sequence[str]) -> Answers:
        """Return the answer to each row, from what it holds in the columns of text."""
        answers: list[Answer | None] = []
        faults: dict[int, str] = {}
        empty = 0
        window = _Window(self, answers)
        for index, (row_cells, origin) in enumerate(zip(cells, origins, strict=True)):
            answers.append(None)
            try:
                given = task_input(row_cells, self.model.kind)
                if given is None or self.model.kind.is_empty(given):
                    empty += 1
                elif not self.model.kind.empty_answer(given).keys() & set(self.fields):
                    count = 1 if isinstance(given, str) else len(given)
                    faults[index] = f"it has {pluralize(count, 'text')} where {len(self.columns)} are expected"
                else:
                    window.add(index, *self.model.row_examples(given, origin))
            except (DataError, UsageError) as error:
                faults[index] = error.full_message.removeprefix(f"{origin}: ")
            if window.is_full:
                window.run()
        window.run()
        nothing = dict.fromkeys(self.fields)
        return Answers([answer or nothing for answer in answers], faults, empty)


class _Window:
    """Rows that are sorted by length together."""

    def __init__(self, predictor: BulkPredictor, answers: list[Answer | None]) -> None:
        self._predictor, self._answers = predictor, answers
        self._clear()

    def _clear(self) -> None:
        self._places: list[int] = []
        self._rows: list[Row] = []
        self._counts: list[int] = []
        self._examples: list[Example] = []
        self._tokens = 0

    def add(self, place: int, row: Row, examples: Sequence[Example]) -> None:
        """Add a row, whose answer goes to its ``place``."""
        self._places.append(place)
        self._rows.append(row)
        self._counts.append(len(examples))
        self._examples += examples
        self._tokens += sum(len(example["input_ids"]) for example in examples)

    @property
    def is_full(self) -> bool:
        """Whether its rows should run before others are added."""
        return len(self._places) >= WINDOW_ROWS or self._tokens >= WINDOW_TOKENS

    def run(self) -> None:
        """Put the answers of all rows in their places."""
        if not self._places:
            return
        model = self._predictor.model
        lengths = np.array([len(example["input_ids"]) for example in self._examples])
        decoded = model.decode_batches(self._examples, self._predictor.batches(lengths))
        found = model.answers(decoded, self._counts, self._rows, every_class=self._predictor.adds_classes)
        for place, answer in zip(self._places, found, strict=True):
            self._answers[place] = answer
        self._clear()


def text_columns(task: TaskInfo, named: str | Sequence[str] = ()) -> tuple[str, ...]:
    """Return the columns that hold a row's texts: those that are named, or the task's."""
    columns = (named,) if isinstance(named, str) else tuple(named)
    kind = kind_of(task)
    least, most = kind.text_columns
    if kind.reads_one_text:
        least = 1
    if columns and not (least <= len(columns) <= (most or len(columns))):
        expected = str(least) if least == most else f"{least} to {most}" if most else f"{least} or more"
        raise UsageError(
            f"{task.name} reads {expected} {'column' if expected == '1' else 'columns'} of text; got"
            f" {pluralize(len(columns), 'column')}: {', '.join(columns)}."
        )
    return columns or task.text


def task_input(cells: Cells, kind: Kind) -> TaskInput | None:
    """Return a row's texts as `predict` takes them; None where it has none.

    A cell may hold a list: the words of a sentence, the choices of a question, the candidates of a query.
    """
    texts: list[str] = []
    for cell in cells:
        values = parse_list(cell, str) if kind.reads_lists else None
        texts += [_text(value) for value in ([cell] if values is None else values)]
    if not texts or not any(text.strip() for text in texts):
        return None
    return texts[0] if len(texts) == 1 else tuple(texts)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if is_missing(value):
        return ""
    raise DataError(f"{str(value)[:40]!r} ({type(value).__name__}) is no text.")


def predict_table(folder: str | Path, rows: Any, **options: Any) -> Any:
    """Return a table with a model's answers as columns; the options are those of `BulkPredictor`.

    Example:
        >>> import compress
        >>> compress.predict_table("winner/cpu", [{"sentence": "a fine film"}])  # doctest: +SKIP
        [{'sentence': 'a fine film', 'label': 'positive', 'probability': 0.9969}]
    """
    return BulkPredictor(folder, **options)(rows)


def spark_predictor(folder: str | Path, **options: Any) -> Callable[[], Callable[..., list[Answer]]]:
    """Return what Spark's `predict_batch_udf` takes as `make_predict_fn`: each Python worker loads the model once.

    The function that it makes reads a column of texts for each of the task's, and returns an answer a row, for a
    `return_type` such as `StructType().add("label", "string").add("probability", "float")`.
    """

    def make_predict_fn() -> Callable[..., list[Answer]]:
        predictor = BulkPredictor(folder, **options)

        def predict(*columns: NDArray[Any]) -> list[Answer]:
            cells = list(zip(*map(plain_values, columns), strict=True))
            found = predictor.answer(cells, [f"row {number}" for number in range(1, len(cells) + 1)])
            for index, fault in found.faults.items():
                raise DataError(f"row {index + 1}: {fault}")
            return list(found.answers)

        return predict

    return make_predict_fn
