"""Parquet as tables of as many rows as are asked for."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from compress.data.loading.text_decoding import reading
from compress.environment import require
from compress.errors import DataError


def open_parquet(path: Path, shown: str) -> Any:
    """Return a file of parquet, which messages call ``shown``."""
    pyarrow = require("pyarrow", "bulk")
    from pyarrow import parquet

    with reading(path):
        try:
            return parquet.ParquetFile(path)
        except pyarrow.ArrowException as error:
            raise unreadable(shown, error) from error


def unreadable(shown: str, error: Exception) -> DataError:
    """Return the error for a file that is no parquet, or is damaged."""
    return DataError(f"{shown} cannot be read as parquet: {error}")


def regrouped(batches: Iterable[Any], count: int, most_bytes: int) -> Iterator[Any]:
    """Yield tables of ``count`` rows, fewer where they are large: batches end with row groups."""
    pyarrow = require("pyarrow", "bulk")
    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        step = max(1, min(count, most_bytes * max(1, len(batch)) // max(1, batch.nbytes)))
        start = 0
        while start < len(batch):
            taken = batch.slice(start, min(step, count - rows))
            held.append(taken)
            start, rows, size = start + len(taken), rows + len(taken), size + taken.nbytes
            if rows == count or size >= most_bytes:
                yield pyarrow.Table.from_batches(held)
                held, rows, size = [], 0, 0
    if held:
        yield pyarrow.Table.from_batches(held)
