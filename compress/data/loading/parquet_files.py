"""Rows of parquet files, of which only the columns that are read are converted."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from compress.data.loading.text_decoding import reading
from compress.environment import require
from compress.errors import DataError
from compress.tasks.base import RawRow
from compress.tasks.parsing.columns import ReadValues, check_distinct

BATCH_ROWS = 1024
"""Rows that are converted at once."""


def parquet_rows(path: Path, columns: Collection[str] | None = None) -> Iterator[RawRow]:
    """Yield the rows of a file, with the values of ``columns``, or of all."""
    pyarrow = require("pyarrow", "train")
    from pyarrow import parquet

    first = 1
    with reading(path):
        try:
            file = parquet.ParquetFile(path)
            names = tuple(check_distinct(list(file.schema_arrow.names), str(path)))
            kept = [name for name in names if columns is None or name in columns]
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=kept):
                where = f"{path}, rows {first:,} to {first + batch.num_rows - 1:,}"
                lists = {name: _values(batch.column(name), name, where) for name in kept}
                for index in range(batch.num_rows):
                    values = {name: values[index] for name, values in lists.items()}
                    yield RawRow(f"{path}, row {first + index}", ReadValues(values, names))
                first += batch.num_rows
        except pyarrow.ArrowException as error:
            raise DataError(f"{path} cannot be read as parquet: {error}") from error


def _values(column: Any, name: str, where: str) -> list[Any]:
    """Return the values of a column; invalid UTF-8 and dates that Python does not have are a DataError."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError) as error:
        raise DataError(f"{where}: column '{name}' cannot be read: {error}.") from error
    return values
