"""Tables as Python holds them (rows, arrays, a pyarrow table, a pandas frame), and answers as columns of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.bulk.write_table import arrow_column
from compress.errors import UsageError


def open_table(
    table: Any,
) -> tuple[int, Mapping[str, Callable[[], Sequence[Any]]], Callable[[Mapping[str, Sequence[Any]]], Any]]:
    """Return the number of rows, the columns by name, and what puts answer columns beside them."""
    if isinstance(table, Mapping):
        _check_columns(table)
        count = len(next(iter(table.values()))) if table else 0
        columns = {str(name): (lambda values=values: plain_values(values)) for name, values in table.items()}
        return count, columns, lambda answers: {**table, **{name: _array(values) for name, values in answers.items()}}
    if hasattr(table, "column_names"):  # pyarrow
        columns = {name: (lambda name=name: table[name].to_pylist()) for name in table.column_names}
        return len(table), columns, lambda answers: _with_arrow_columns(table, answers)
    if hasattr(table, "assign"):  # pandas
        columns = {str(name): (lambda name=name: table[name].tolist()) for name in table.columns}
        return len(table), columns, lambda answers: table.assign(**answers)
    rows = _rows(table)
    names = dict.fromkeys(str(name) for row in rows for name in row)
    columns = {name: (lambda name=name: [row.get(name) for row in rows]) for name in names}

    def as_rows(answers: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
        return [
            {**row, **dict(zip(answers, values, strict=True))}
            for row, values in zip(rows, zip(*answers.values(), strict=True), strict=True)
        ]

    return len(rows), columns, as_rows


def _check_columns(table: Mapping[Any, Any]) -> None:
    """Refuse a text in the place of a column, whose characters would be its values."""
    if texts := [name for name, values in table.items() if isinstance(values, str)]:
        raise UsageError(f"column '{texts[0]}' is a list of values; got a text.", hint="a row is a mapping in a list")


def _rows(table: Any) -> list[Mapping[Any, Any]]:
    """Return the rows of a list, or of what can be read only once, such as csv.DictReader."""
    try:
        rows = list(table)
    except TypeError as error:
        raise _no_table(table) from error
    if isinstance(table, str) or not all(isinstance(row, Mapping) for row in rows):
        raise _no_table(table)
    return rows


def _no_table(given: Any) -> UsageError:
    """Return the error for what holds no rows."""
    return UsageError(
        "expected rows (a list of mappings), a mapping of columns, a pyarrow table or a pandas frame; "
        f"got {type(given).__name__}.",
        hint="compress.open(folder).predict takes a list of texts",
    )


def plain_values(values: Any) -> list[Any]:
    """Return an array's values, those of arrays within as lists."""
    plain = values.tolist() if hasattr(values, "tolist") else list(values)
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in plain]


def _array(values: Sequence[Any]) -> NDArray[Any]:
    """Return a column as an array; lists of one length (embeddings) as one of two axes, others as objects."""
    if values and all(isinstance(value, float) for value in values):
        return np.array(values, np.float32)
    if values and isinstance(values[0], list) and all(isinstance(value, list) for value in values):
        lengths = {len(value) for value in values}
        if len(lengths) == 1 and all(isinstance(item, float) for item in values[0]):
            return np.array(values, np.float32)
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _with_arrow_columns(table: Any, answers: Mapping[str, Sequence[Any]]) -> Any:
    for name, values in answers.items():
        table = table.append_column(name, arrow_column(values))
    return table
