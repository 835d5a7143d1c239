"""What task kinds read and produce: rows, examples, metrics, decisions; and the interface of the tokenizer."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from compress.errors import DataError

Array = NDArray[Any]
Arrays = dict[str, Array]
Row = Mapping[str, Any]
"""A canonical row: the fields of its kind, plain Python values."""
Rows = Sequence[Row]
Example = dict[str, Any]
"""One model input: `input_ids` (a list of ints) and whatever else the kind needs, e.g. `label`, `token_type_ids`."""
TaskInput = str | tuple[str, ...]
"""One input to predict: one text, or several (a pair; a question and its choices)."""


class RawRow(NamedTuple):
    """One row as its source holds it."""

    where: str
    """`train.tsv, row 17 (line 18)`."""
    values: Mapping[str, Any]
    fault: DataError | None = None
    """Why it could not be read, where `bad_rows: skip` leaves such rows out; it has no values then."""


class LazyRows(Sequence[Row]):
    """Rows that are made on access: none is held in memory, however many there are."""

    @abstractmethod
    def row(self, index: int) -> Row:
        """Return the row at an index from 0."""

    def __getitem__(self, index: Any) -> Any:
        """Return the row at an index, or a list of those of a slice."""
        indices = range(len(self))[index]
        return [self.row(number) for number in indices] if isinstance(indices, range) else self.row(indices)


def evenly_spaced(rows: Rows, most: int) -> list[Row]:
    """Return up to ``most`` of the rows, at even distances from the first one on; the same ones every time."""
    count = min(len(rows), most)
    return [rows[index * len(rows) // count] for index in range(count)]


@dataclass(frozen=True)
class Encoding:
    """The tokens of one text or text pair."""

    input_ids: list[int]
    token_type_ids: list[int]
    truncated: bool
    spans: list[tuple[int, int]] | None = None
    """First and end character of each token in the last text, without surrounding white space; (-1, -1) for special
    tokens and those of the other text. Only `Encode.windows` sets them."""

    def example(self, **fields: Any) -> Example:
        """Return the tokens as an example with these ``fields``, without those that are None."""
        given = {name: value for name, value in fields.items() if value is not None}
        return {"input_ids": self.input_ids, "token_type_ids": self.token_type_ids, **given}


class Encode(Protocol):
    """Text to tokens; implemented by `data/tokenizer.py`."""

    def __call__(self, text: str, pair: str | None, max_tokens: int) -> Encoding:
        """Return the tokens of a text or pair, special tokens included, cut to ``max_tokens``."""
        ...

    def windows(self, text: str, pair: str | None, max_tokens: int, overlap: int, limit: int) -> list[Encoding]:
        """Return the last text in windows of up to ``max_tokens``, each with all of the first text of a pair.

        Neighbours share ``overlap`` tokens. There are at most ``limit`` windows; where more would be needed the last
        one is marked as truncated.
        """
        ...


@dataclass(frozen=True)
class Metric:
    """A metric of a kind."""

    name: str
    larger_is_better: bool = True
    is_accuracy: bool = False
    """It is the share of rows that `correct` marks: McNemar's test applies."""
    needs_varied_labels: bool = True
    """It is undefined on rows whose true labels are all the same (a correlation, an F1)."""


class Baseline(NamedTuple):
    """A simple model that a model of this kind should be better than."""

    name: str
    """In reports: `a bag of words`."""
    path: str
    """`module:function` of a `Predict` (`measure/baselines/__init__.py`)."""


@dataclass(frozen=True)
class Script:
    """Lines of Python that predict without compress: how texts are read, and what is printed of the model's outputs."""

    prints: str
    """What it prints, in words."""
    each: tuple[str, ...]
    """After the `outputs` and the `encoding` of each text, before the next."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    loop: str | None = None
    """None: over texts, or pairs where the task reads pairs."""
    encode: str = "text"
    """Arguments of the tokenizer."""
    labels: bool = False
    """Whether it reads the task's `labels`."""
    sample: str = '"a text" "another text"'
    """Arguments to try it with."""


@dataclass(frozen=True)
class ConfusionCounts:
    """How often each true class was predicted as each class."""

    names: tuple[str, ...]
    """Of the classes, in the order of lines and columns."""
    counts: Array
    """By true class (lines) and predicted class (columns)."""
    unit: str = "rows"
    """What is counted."""


@dataclass(frozen=True)
class Confidence:
    """The probabilities of a model's decisions; a row may have one (its class) or many (each label, each word)."""

    row: Array
    """The row of each decision."""
    stated: Array
    """The probability that the model gave to its decision."""
    right: Array
    """Whether the decision was right."""
