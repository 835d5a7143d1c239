"""Splits of data sets on the Hugging Face Hub, through the datasets library."""

import logging
from collections.abc import Collection, Iterator
from typing import Any

from compress.environment import require
from compress.errors import DataError
from compress.recipe.task_schema import Data
from compress.tasks.base import RawRow
from compress.tasks.parsing.columns import ReadValues


def hub_rows(data: Data, split: str, names: bool, columns: Collection[str] | None = None) -> Iterator[RawRow]:
    """Yield the rows of one split, memory-mapped from the library's cache, with the values of ``columns``, or of all.

    Remote code is never run. With ``names``, class numbers, or lists of them, are replaced by the data set's own names,
    and its mark for "no label" (-1) by None; otherwise numbers stay numbers, for the recipe to name.
    """
    datasets = require("datasets", "train")
    rows = _load(datasets, data, split)
    every = tuple(rows.column_names)
    rows = rows.select_columns([name for name in every if columns is None or name in columns] or list(every))
    features = {column: getattr(feature, "feature", feature) for column, feature in rows.features.items() if names}
    classes = {name: feature for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)}
    for number, row in enumerate(rows, 1):
        named = {column: _class_name(feature, row[column]) for column, feature in classes.items()}
        yield RawRow(f"{data.hub} {split}, row {number}", ReadValues({**row, **named}, every))


def _class_name(feature: Any, number: int | list[int] | None) -> str | list[Any] | None:
    if isinstance(number, list):
        return [_class_name(feature, each) for each in number]
    return None if number is None or number < 0 else str(feature.int2str(number))


def _load(datasets: Any, data: Data, split: str) -> Any:
    name, configuration = _address(data.hub or "")
    try:
        # A failure is reported once, at the end, without a line for every retry.
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
        datasets.disable_progress_bars()
        return datasets.load_dataset(name, configuration, split=split, revision=data.revision)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = [*str(error).strip().splitlines(), type(error).__name__][0]
        raise DataError(
            f"the hub set {data.hub} (split {split}) cannot be loaded: {reason}",
            hint="without the hub, point the task at local files: "
            "--set task.data.train=FILE --set task.data.test=FILE (csv, tsv, jsonl or parquet)",
        ) from error


def _address(hub: str) -> tuple[str, str | None]:
    """Split `owner/name` or `owner/name/configuration`."""
    parts = hub.split("/")
    if len(parts) > 3 or not all(parts):
        raise DataError(f"task.data.hub: '{hub}' is no hub set; expected owner/name or owner/name/configuration.")
    return "/".join(parts[:2]), parts[2] if len(parts) == 3 else None
