"""The rows of a recipe before they are prepared: how many there are, and about how long. Coarse and quick."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.console import Console
from compress.data.loading.data_digest import part_files
from compress.data.loading.part_rows import columns_read
from compress.data.loading.quickstart_dataset import builtin_file
from compress.data.loading.raw_rows import LINE, file_rows, format_of, header_of
from compress.data.loading.text_decoding import opened, reading
from compress.environment import require
from compress.errors import CompressError
from compress.model_folder.model_info import ShapeInfo
from compress.model_shapes import shape_of_config
from compress.recipe.field_types import Part, Role
from compress.recipe.task_schema import Task
from compress.tasks import kind_of
from compress.tasks.base import RawRow
from compress.tasks.parsing.columns import column_value

SAMPLE = 300
"""Rows whose lengths represent all."""
COUNTED = 50_000
"""Rows of a format without a line for each that are counted at most; larger files count as this many."""
HEADED = ("csv", "tsv")
LINE_FORMATS = (*HEADED, "jsonl", "txt")
CHARACTERS = 4.5
"""Characters of a word piece, with its space."""
WORD_PIECES = 1.3
"""Word pieces of a word that is a token of its own."""
SPECIAL = 2
ASSUMED_ROWS = 10_000
"""Rows of a set that is not here yet."""
ASSUMED_LENGTH = 32
SPLIT_SHARE = 0.1
"""Share of train that a role gets which has no rows of its own."""
CHOICES = 4
"""Examples of a row of a kind with any number of choices or candidates."""
BASE = {
    "model_type": "bert",
    "hidden_size": 768,
    "vocab_size": 30_522,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "max_position_embeddings": 512,
}
"""The config of a teacher that is not here yet."""


@dataclass(frozen=True)
class RawSample:
    """What is known of rows that are not prepared."""

    counts: Mapping[Role, int]
    lengths: NDArray[np.int64]
    """Estimated lengths in tokens of some rows of train."""
    examples: float
    """Examples of a row."""
    unlabelled: int
    text: str
    """`2,400 rows`."""

    @property
    def shape(self) -> ShapeInfo:
        """The shape of a teacher that is not here yet."""
        return shape_of_config(BASE)


def raw_sample(task: Task) -> RawSample:
    """Return the numbers of rows in a task's files and the lengths of a sample; assumed ones where it has no files."""
    data, examples = task.data, CHOICES if kind_of(task).is_variadic else 1
    if data.builtin is not None:
        rows, known = _lines_in(builtin_file(data.builtin, Console("quiet"))), ""
    elif data.hub is not None:
        rows, known = ASSUMED_ROWS, "an assumed "
    else:
        rows, known = _count(task, "train"), ""
    read = min(rows, data.limit or rows)
    given: dict[Role, int] = {"train": min(read, data.labelled or read)}
    for role in ("select", "test"):
        own = 0 if data.hub or data.builtin else _count(task, role)
        given[role] = min(own or round(rows * SPLIT_SHARE), data.limit or max(own, rows))
    files = not (data.hub or data.builtin)
    lengths = _lengths(task) if files else np.array([ASSUMED_LENGTH])
    unlabelled = _count(task, "unlabelled") if files and data.unlabelled else 0
    unlabelled = min(unlabelled, data.limit or unlabelled)
    unlabelled += read - given["train"]
    return RawSample(given, lengths, float(examples), unlabelled, f"{known}{given['train']:,} rows")


def _count(task: Task, part: Part) -> int:
    return sum(_rows_in(path, task, part) for path in part_files(task.data, part))


def _rows_in(path: Path, task: Task, part: Part) -> int:
    """Return the lines of a file, which are its rows but for breaks within fields."""
    form = task.data.format or format_of(path)
    if form == "parquet":
        require("pyarrow", "train")
        from pyarrow import parquet

        return int(parquet.ParquetFile(path).metadata.num_rows)
    if form not in LINE_FORMATS:
        return sum(1 for _ in islice(file_rows(path, task.data, part), COUNTED))
    has_header = form in HEADED and header_of(task.data, part) is True
    return max(1, _lines_in(path) - has_header)


def _lines_in(path: Path) -> int:
    with reading(path), opened(path) as stream:
        return max(1, sum(block.count(b"\n") for block in iter(lambda: stream.read(2**20), b"")))


def _lengths(task: Task) -> NDArray[np.int64]:
    """Return the estimated lengths of the first rows of train."""
    files, columns = part_files(task.data, "train"), columns_read(task, "train")
    rows = (row for path in files for row in file_rows(path, task.data, "train", columns))
    try:
        pieces = [_pieces(row, task) for row in islice(rows, SAMPLE) if row.fault is None]
    except CompressError:  # a row that does not fit the task; preparing the data says so
        pieces = []
    lengths: NDArray[np.int64] = np.array(pieces or [ASSUMED_LENGTH]).astype(np.int64)
    return np.clip(lengths, SPECIAL + 1, task.max_length)


def _pieces(row: RawRow, task: Task) -> float:
    values = [row.values[LINE]] if LINE in row.values else [_value(row, column, task) for column in task.text]
    return SPECIAL + sum(
        len(value) * WORD_PIECES if isinstance(value, list) else len(str(value)) / CHARACTERS for value in values
    )


def _value(row: RawRow, column: str, task: Task) -> object:
    return column_value(row.values, column, task, row.where)
