"""Rows to examples kept in memory-mapped files, and examples to batches whose order is a pure function of a seed."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from compress.data.splits.concatenated_rows import Origin, train_origin
from compress.data.splits.mmap_arrays import mapped, release
from compress.data.tokenizer import TextTokenizer
from compress.errors import DataError
from compress.model_info import TaskInfo
from compress.tasks import kind_of
from compress.tasks.base import BESIDE, Arrays, Encoding, Example, Kind, Row

POOL = 64
"""Batches that are sorted by length together: enough that neighbours are alike, few enough that order stays random."""

FLUSH = 1 << 18
"""Numbers kept in memory of each field while writing."""


class EncodedRows:
    """EncodedRows rows: a sequence of examples in memory-mapped files, collated a batch at a time."""

    def __init__(
        self, fields: Mapping[str, Ragged], counts: NDArray[np.int64], cut: int, kind: Kind, pad_id: int
    ) -> None:
        """``counts`` are examples a row and ``cut`` the number of rows that lost pieces; see ``encode_rows``."""
        self._fields = fields
        self._kind = kind
        self._pad_id = pad_id
        self.counts = counts
        self.lengths: NDArray[np.int64] = fields["input_ids"].lengths
        """Pieces of each example."""
        self.pieces = self.lengths
        """The same, counted as `index` does, whatever is put into batches."""
        self.truncated = cut / len(counts)
        """Share of rows of which the model does not see everything."""
        self.lasting = len(self.lengths)
        """Examples, from the first on, of which a teacher's answers are worth keeping on disk; those behind are
        augmented ones, which go past the cache."""
        self.origin_of: Callable[[int], Origin] = train_origin
        """Tells where a row comes from, where others are joined to train."""

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, indices: Sequence[int] | NDArray[np.int64]) -> Arrays:
        """The padded arrays of these examples, in this order; `index` tells which ones they are.

        Where rows have them, also `labelled` (examples,), 1 for a true answer and 0 for a stand-in, and `soft_labels`
        (examples, classes), not a number (nan) for rows without: both float32, the same for all examples of a row.
        """
        examples = [self.example(int(index)) for index in indices]
        beside = {
            name: np.asarray([example[name] for example in examples], dtype=np.float32)
            for name in BESIDE
            if name in self._fields
        }
        arrays = self._kind.collate(examples, self._pad_id)
        for field in self._fields.values():
            field.release()
        return {**arrays, **beside, "index": np.asarray(indices, dtype=np.int64)}

    def example(self, index: int) -> Example:
        """One example; its sequences are read-only views into the files."""
        return {name: field[index] for name, field in self._fields.items()}

    def origins(self, indices: NDArray[np.int64]) -> list[Origin]:
        """Where the row comes from that each of these examples was made of."""
        rows = np.searchsorted(np.cumsum(self.counts), indices, side="right")
        return [self.origin_of(row) for row in rows.tolist()]

    def digest(self) -> str:
        """What the examples are known by: all that is in them, and how they make up rows."""
        digest = hashlib.sha256(self.counts.tobytes())
        for name in sorted(self._fields):
            field = self._fields[name]
            digest.update(name.encode())
            digest.update(field.lengths.tobytes())
            for start in range(0, len(field.values), FLUSH):
                digest.update(field.values[start : start + FLUSH].data)
                field.release()
        return digest.hexdigest()

    def vocabulary(self) -> NDArray[np.int64]:
        """The ids of the pieces that occur, the one of padding too, ascending."""
        ids, seen = self._fields["input_ids"], np.zeros(self._pad_id + 1, dtype=bool)
        seen[self._pad_id] = True
        for start in range(0, len(ids.values), FLUSH):
            here = np.bincount(ids.values[start : start + FLUSH], minlength=len(seen)) > 0
            here[: len(seen)] |= seen
            seen = here
            ids.release()
        return np.flatnonzero(seen)

    def close(self) -> None:
        """Let go of the files."""
        self._fields = {}


class GroupedRows:
    """EncodedRows rows of which each goes into a batch with all of its examples."""

    def __init__(self, encoded: EncodedRows) -> None:
        self._encoded = encoded
        self._counts = encoded.counts
        self._starts = np.cumsum(encoded.counts) - encoded.counts
        self.lengths: NDArray[np.int64] = np.maximum.reduceat(encoded.lengths, self._starts)
        """Pieces of each row's longest example, to which all of its batch are padded."""
        self.pieces = encoded.pieces
        """Pieces of each example, as `index` counts them."""
        self.lasting = encoded.lasting
        """As told of the encoded rows: in examples, as `index` counts."""

    def origins(self, indices: NDArray[np.int64]) -> list[Origin]:
        """Where each of these rows comes from."""
        return [self._encoded.origin_of(row) for row in indices.tolist()]

    def digest(self) -> str:
        """What the rows are known by."""
        return self._encoded.digest()

    def vocabulary(self) -> NDArray[np.int64]:
        """As of the encoded rows."""
        return self._encoded.vocabulary()

    def batch(self, indices: Sequence[int] | NDArray[np.int64]) -> Arrays:
        """The padded arrays of all examples of these rows; `group` tells which row of the batch each belongs to."""
        examples = [np.arange(self._starts[row], self._starts[row] + self._counts[row]) for row in indices]
        group = np.repeat(np.arange(len(examples)), [len(each) for each in examples])
        return {**self._encoded.batch(np.concatenate(examples)), "group": group}


class Ragged:
    """Lists of numbers of different lengths, end to end in one memory-mapped file; or one number each."""

    def __init__(self, path: Path, lengths: NDArray[np.int64], dtype: str, scalar: bool) -> None:
        self._pages = mapped(path)
        self.values: NDArray[Any] = np.frombuffer(self._pages or b"", dtype)
        self._ends: NDArray[np.int64] | None = None if scalar else np.cumsum(lengths)
        self.lengths = lengths

    def __getitem__(self, index: int) -> Any:
        if self._ends is None:
            return self.values[index].item()
        end = self._ends[index]
        return self.values[end - self.lengths[index] : end]

    def release(self) -> None:
        """Let go of the pages that were read."""
        release(self._pages)

    def share(self, other: Ragged) -> None:
        """Hold one list of lengths together with another field of the same examples, where they are the same."""
        if self._ends is not None and np.array_equal(self.lengths, other.lengths):
            self.lengths, self._ends = other.lengths, other._ends


class Field:
    """One field of the examples while it is written."""

    def __init__(self, path: Path, stream: BinaryIO, first: Any) -> None:
        self._path, self._stream = path, stream
        self._scalar = not isinstance(first, (list, tuple))
        sample = first if self._scalar else next(iter(first), 0)
        self._code = "f" if isinstance(sample, float) else "i"
        self._waiting = array(self._code)
        self._lengths = array("q")

    def add(self, value: Any) -> None:
        """Append one example's value."""
        before = len(self._waiting)
        if self._scalar:
            self._waiting.append(value)
        else:
            self._waiting.extend(value)
        self._lengths.append(len(self._waiting) - before)
        if len(self._waiting) > FLUSH:
            self.flush()

    def flush(self) -> None:
        """Hand what waits to the file."""
        self._waiting.tofile(self._stream)
        del self._waiting[:]

    def opened(self) -> Ragged:
        """The field for reading."""
        dtype, lengths = "float32" if self._code == "f" else "int32", np.array(self._lengths, dtype=np.int64)
        if self._scalar:
            lengths = np.broadcast_to(np.int64(1), lengths.shape)
        return Ragged(self._path, lengths, dtype, self._scalar)


def encode_rows(rows: Iterable[Row], task: TaskInfo, tokens: TextTokenizer, folder: Path | None = None) -> EncodedRows:
    """Encode ``rows`` once, into ``folder`` or into a temporary one that goes away with the result."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        return _encode(rows, task, tokens, folder)
    room = Path(tempfile.mkdtemp(prefix="compress-"))
    try:
        encoded = _encode(rows, task, tokens, room)
    except BaseException:
        shutil.rmtree(room, ignore_errors=True)
        raise
    weakref.finalize(encoded, shutil.rmtree, room, ignore_errors=True)
    return encoded


def _encode(rows: Iterable[Row], task: TaskInfo, tokens: TextTokenizer, folder: Path) -> EncodedRows:
    kind = kind_of(task)
    counts, cut, fields = array("q"), 0, dict[str, Field]()
    with ExitStack() as files:
        for row in rows:
            noting = _Noting(tokens)
            examples = kind.examples(row, task, noting)
            beside = extra_columns(row)
            for example in examples:
                example.update(beside)
                if not fields:
                    fields = {name: _open_field(folder, name, files, value) for name, value in example.items()}
                for name, field in fields.items():
                    field.add(example[name])
            counts.append(len(examples))
            cut += noting.truncated
        for field in fields.values():
            field.flush()
    if not fields:
        raise DataError("there are no rows to encode.")
    opened = {name: field.opened() for name, field in fields.items()}
    for ragged in opened.values():
        ragged.share(opened["input_ids"])
    return EncodedRows(opened, np.array(counts, dtype=np.int64), cut, kind, tokens.pad_id)


def extra_columns(row: Row) -> Example:
    """What a row brings along beside the fields of its kind, as its examples hold it."""
    found = {name: row[name] for name in BESIDE if name in row}
    return {**found, "labelled": float(found["labelled"])} if "labelled" in found else found


def _open_field(folder: Path, name: str, files: ExitStack, first: Any) -> Field:
    path = folder / f"{name}.bin"
    return Field(path, files.enter_context(path.open("wb")), first)


class _Noting:
    """Encodes, and remembers whether anything was cut."""

    def __init__(self, tokens: TextTokenizer) -> None:
        self._tokens = tokens
        self.truncated = False

    def __call__(self, text: str, pair: str | None, most: int) -> Encoding:
        return self._noted([self._tokens(text, pair, most)])[0]

    def windows(self, text: str, pair: str | None, most: int, overlap: int, limit: int) -> list[Encoding]:
        return self._noted(self._tokens.windows(text, pair, most, overlap, limit))

    def _noted(self, found: list[Encoding]) -> list[Encoding]:
        self.truncated = self.truncated or any(each.truncated for each in found)
        return found


def training_examples(encoded: EncodedRows, task: TaskInfo) -> EncodedRows | GroupedRows:
    """What batches are made of while training: single examples, or rows with all of theirs."""
    return GroupedRows(encoded) if kind_of(task).keep_row_together(task) else encoded


def bucketed_batches(lengths: NDArray[np.int64], batch_size: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Batches for one epoch of training: every example once, similar lengths together, order shuffled.

    The examples are shuffled, cut into pools of many batches, sorted by length within each pool and cut into batches,
    whose order is shuffled again. Only one batch of an epoch can be short. The result depends on the arguments alone.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    pools = _chunks(order, batch_size * POOL)
    batches = [batch for pool in pools for batch in _chunks(pool[np.argsort(lengths[pool], kind="stable")], batch_size)]
    return [batches[index] for index in random.permutation(len(batches))]


def by_length(lengths: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """Batches for scoring: every example once, shortest first, so that padding costs little."""
    return _chunks(np.argsort(lengths, kind="stable"), batch_size)


def _chunks(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [order[start : start + size] for start in range(0, len(order), size)]
