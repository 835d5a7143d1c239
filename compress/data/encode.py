"""Rows to examples in memory-mapped files, and examples to batches whose order is a pure function of a seed."""

import hashlib
import shutil
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.batch_arrays import BATCH_POSITIONS, GROUP, INDEX, TEACHER_IDS, BatchArray, extra_values
from compress.data.encoded_cache import (
    Encoded,
    cache_entry,
    field_file,
    limit_size,
    read_entry,
    write_index,
)
from compress.data.splits.row_store import ConcatenatedRows, Origin, train_origin
from compress.data.tokenizer import TextTokenizer
from compress.errors import DataError, UsageError
from compress.model_folder.model_info import TaskInfo
from compress.storage.atomic_write import new_folder
from compress.storage.mapped_arrays import RaggedArray, RaggedWriter
from compress.tasks import kind_of
from compress.tasks.base import Arrays, Encoding, Example, Row
from compress.tasks.kind import Kind

ROWS_BEFORE_RELEASE = 4096
"""Rows that are read one by one before their pages are released."""
BATCHES_PER_POOL = 64
"""Batches that are sorted by length together: enough that neighbours are alike, few enough that order stays random."""


class EncodedRows:
    """Encoded rows: a sequence of examples in memory-mapped files, collated a batch at a time."""

    def __init__(
        self, fields: Mapping[str, RaggedArray], counts: NDArray[np.int64], cut: int, kind: Kind, pad_id: int
    ) -> None:
        """Use ``encode_rows``; ``counts`` are examples per row and ``cut`` the number of rows that were truncated."""
        self._fields = fields
        for ragged in fields.values():
            ragged.share_lengths(fields["input_ids"])
        self._kind = kind
        self._pad_id = pad_id
        self.counts = counts
        self.starts: NDArray[np.int64] = np.cumsum(counts) - counts
        """The first example of each row."""
        self.lengths: NDArray[np.int64] = fields["input_ids"].lengths
        """Tokens of each example."""
        self.example_lengths = self.lengths
        """Tokens of each example that `index` can name; `GroupedRows.lengths` are of rows."""
        self.truncated = cut / len(counts)
        """Share of rows of which the model does not see everything."""
        self.cacheable = len(self.lengths)
        """The number of examples, from the first on, whose teacher outputs are worth caching on disk; those after them
        are augmented ones."""
        self.origin_of: Callable[[int], Origin] = train_origin
        """Returns where a row comes from, where others are concatenated to train."""
        self.teacher_ids: NDArray[np.int64] | None = None
        """The teacher's id of each piece, where the student's vocabulary is a part of the teacher's."""

    def __len__(self) -> int:
        return len(self.lengths)

    def arrays(self) -> Mapping[str, BatchArray]:
        """Return the declarations of all arrays that a batch may hold, by name."""
        arrays = {**self._kind.arrays(), **{array.name: array for array in BATCH_POSITIONS}}
        if self.teacher_ids is not None:
            fill = int(self.teacher_ids[self._pad_id])
            arrays[TEACHER_IDS] = BatchArray(TEACHER_IDS, "token", np.int64, fill)
        return arrays

    def batch(self, indices: Sequence[int] | NDArray[np.int64]) -> Arrays:
        """Return the padded arrays of these examples, in this order; `index` holds the indices.

        Where rows have them, also `labelled` (examples,) and `soft_labels` (examples, classes), NaN for rows without:
        both the same for all examples of a row.
        """
        arrays = self._kind.collate([self.example(int(index)) for index in indices], self._pad_id)
        self.release()
        if self.teacher_ids is not None:
            arrays[TEACHER_IDS] = self.teacher_ids[arrays["input_ids"]]
        return {**arrays, INDEX: np.asarray(indices, dtype=np.int64)}

    def example(self, index: int) -> Example:
        """Return one example; its sequences are read-only views into the files."""
        return {name: field[index] for name, field in self._fields.items()}

    def examples_of_row(self, row: int) -> list[Example]:
        """Return the examples of a row as copies, which can be written again."""
        start = self.starts[row]
        return [
            {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in each.items()}
            for each in map(self.example, range(start, start + self.counts[row]))
        ]

    def release(self) -> None:
        """Release the pages of the files that were read."""
        for field in self._fields.values():
            field.release()

    def examples_of(self, rows: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the examples of these rows."""
        return np.concatenate([np.arange(self.starts[row], self.starts[row] + self.counts[row]) for row in rows])

    def origins(self, indices: NDArray[np.int64]) -> list[Origin]:
        """Return where the row of each of these examples comes from."""
        rows = np.searchsorted(np.cumsum(self.counts), indices, side="right")
        return [self.origin_of(row) for row in rows.tolist()]

    def digest(self) -> str:
        """Return a digest of the examples' contents, and of how they make up rows."""
        digest = hashlib.sha256(self.counts.tobytes())
        if self.teacher_ids is not None:
            digest.update(self.teacher_ids.tobytes())
        for name in sorted(self._fields):
            field = self._fields[name]
            digest.update(name.encode())
            digest.update(field.lengths.tobytes())
            for block in field.blocks():
                digest.update(block.data)
        return digest.hexdigest()

    def piece_counts(self, size: int) -> NDArray[np.int64]:
        """Return how often each of ``size`` token ids occurs."""
        total = np.zeros(size, np.int64)
        for block in self._fields["input_ids"].blocks():
            total += np.bincount(block, minlength=size)
        return total

    def vocabulary(self) -> NDArray[np.int64]:
        """Return the token ids that occur, that of padding included, ascending."""
        seen = np.array([self._pad_id])
        for block in self._fields["input_ids"].blocks():
            seen = np.union1d(seen, block)
        return seen


class GroupedRows:
    """Encoded rows of which each goes into a batch with all of its examples."""

    def __init__(self, encoded: EncodedRows) -> None:
        self._encoded = encoded
        self.lengths: NDArray[np.int64] = np.maximum.reduceat(encoded.lengths, encoded.starts)
        """Tokens of each row's longest example, to which all of its batch are padded."""
        self.example_lengths = encoded.example_lengths
        """Tokens of each example, as `index` counts them."""
        self.cacheable = encoded.cacheable
        """As of the encoded rows: in examples, as `index` counts."""
        self.arrays = encoded.arrays
        self.digest = encoded.digest
        self.vocabulary = encoded.vocabulary

    def origins(self, indices: NDArray[np.int64]) -> list[Origin]:
        """Return where each of these rows comes from."""
        return [self._encoded.origin_of(row) for row in indices.tolist()]

    def batch(self, indices: Sequence[int] | NDArray[np.int64]) -> Arrays:
        """Return the padded arrays of all examples of these rows; `group` is the row of the batch each belongs to."""
        group = np.repeat(np.arange(len(indices)), self._encoded.counts[indices])
        return {**self._encoded.batch(self._encoded.examples_of(indices)), GROUP: group}


def encode_rows(rows: Iterable[Row], task: TaskInfo, tokens: TextTokenizer) -> EncodedRows:
    """Encode ``rows`` once.

    Rows of a run's steps are encoded into a cache beside them, or read from there if a step encoded them so before;
    others into a temporary folder that is removed with the result.
    """
    entry = cache_entry(rows, task, tokens)
    if entry is not None:
        with suppress(OSError, UsageError):  # no room, or a folder that cannot be written to
            return _cached(entry, rows, task, tokens)
    temporary = Path(tempfile.mkdtemp(prefix="compress-"))
    try:
        encoded = EncodedRows(*_write(rows, task, tokens, temporary), kind_of(task), tokens.pad_id)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    weakref.finalize(encoded, shutil.rmtree, temporary, ignore_errors=True)
    return encoded


def encode_sample(
    rows: Sequence[Row], chosen: NDArray[np.int64], task: TaskInfo, tokens: TextTokenizer
) -> tuple[EncodedRows, NDArray[np.int64]]:
    """Return an encoding that holds the ``chosen`` rows, and which of its examples are theirs.

    It is that of all rows where an earlier step of the run has cached it; else only these rows are encoded.
    """
    entry = cache_entry(rows, task, tokens)
    if entry is not None and (stored := read_entry(entry)) is not None:
        encoded = EncodedRows(*stored, kind_of(task), tokens.pad_id)
        return encoded, encoded.examples_of(chosen)
    encoded = encode_rows([rows[int(index)] for index in chosen], task, tokens)
    return encoded, np.arange(len(encoded))


def _cached(entry: Path, rows: Iterable[Row], task: TaskInfo, tokens: TextTokenizer) -> EncodedRows:
    stored = read_entry(entry)
    if stored is None:
        with new_folder(entry) as folder:
            write_index(folder, _write(rows, task, tokens, folder))
        stored = read_entry(entry)
        limit_size(entry.parent)
    if stored is None:
        raise OSError(f"{entry} cannot be read")
    return EncodedRows(*stored, kind_of(task), tokens.pad_id)


def _write(rows: Iterable[Row], task: TaskInfo, tokens: TextTokenizer, folder: Path) -> Encoded:
    """Write each field of the examples into ``folder``, and open it."""
    counts, fields, encoder = array("q"), dict[str, RaggedWriter](), _RowEncoder(rows, task, tokens)
    with ExitStack() as files:
        for number, row in enumerate(rows):
            examples = encoder.examples(number, row)
            extra = extra_values(row)
            for example in examples:
                example.update(extra)
                if not fields:
                    writers = ((name, RaggedWriter(field_file(folder, name), value)) for name, value in example.items())
                    fields = {name: files.enter_context(writer) for name, writer in writers}
                for name, field in fields.items():
                    field.add(example[name])
            counts.append(len(examples))
    if not fields:
        raise DataError("there are no rows to encode.")
    opened = {name: field.open() for name, field in fields.items()}
    return Encoded(opened, np.array(counts, dtype=np.int64), encoder.cut)


class _RowEncoder:
    """Makes examples of rows: reads those of train where an earlier step has cached them, and tokenizes others."""

    def __init__(self, rows: Iterable[Row], task: TaskInfo, tokens: TextTokenizer) -> None:
        self._task, self._tokens, self._kind = task, tokens, kind_of(task)
        entry = cache_entry(rows.train, task, tokens) if isinstance(rows, ConcatenatedRows) else None
        stored = None if entry is None else read_entry(entry)
        self._train = None if stored is None else EncodedRows(*stored, self._kind, tokens.pad_id)
        self.cut = 0 if stored is None else stored.cut
        """Rows that were truncated, once all were read."""

    def examples(self, number: int, row: Row) -> list[Example]:
        """Return the examples of row ``number``."""
        if self._train is not None and number < len(self._train.counts):
            if number % ROWS_BEFORE_RELEASE == 0:
                self._train.release()
            return self._train.examples_of_row(number)
        encode = _TruncationTracker(self._tokens)
        examples = self._kind.examples(row, self._task, encode)
        self.cut += encode.truncated
        return examples


class _TruncationTracker:
    """A tokenizer that records whether anything was cut."""

    def __init__(self, tokens: TextTokenizer) -> None:
        self._tokens = tokens
        self.truncated = False

    def __call__(self, text: str, pair: str | None, max_tokens: int) -> Encoding:
        return self._tracked([self._tokens(text, pair, max_tokens)])[0]

    def windows(self, text: str, pair: str | None, max_tokens: int, overlap: int, limit: int) -> list[Encoding]:
        return self._tracked(self._tokens.windows(text, pair, max_tokens, overlap, limit))

    def _tracked(self, encodings: list[Encoding]) -> list[Encoding]:
        self.truncated = self.truncated or any(encoding.truncated for encoding in encodings)
        return encodings


def training_examples(encoded: EncodedRows, task: TaskInfo) -> EncodedRows | GroupedRows:
    """Return what training batches are made of: single examples, or rows with all of theirs."""
    return GroupedRows(encoded) if kind_of(task).keep_row_together(task) else encoded


def bucketed_batches(lengths: NDArray[np.int64], batch_size: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Return the batches of one epoch: every example once, similar lengths together, in random order.

    The examples are shuffled, cut into pools of many batches, sorted by length within each pool and cut into batches,
    whose order is shuffled again. Only one batch of an epoch can be short. The result depends on the arguments alone.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    pools = _chunks(order, batch_size * BATCHES_PER_POOL)
    batches = [batch for pool in pools for batch in _chunks(pool[np.argsort(lengths[pool], kind="stable")], batch_size)]
    return [batches[index] for index in random.permutation(len(batches))]


def batches_by_length(lengths: NDArray[np.int64], batch_size: int) -> list[NDArray[np.int64]]:
    """Return batches for scoring: every example once, shortest first, so that padding costs little."""
    return _chunks(np.argsort(lengths, kind="stable"), batch_size)


def _chunks(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [order[start : start + size] for start in range(0, len(order), size)]
