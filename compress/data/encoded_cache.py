"""Encoded rows of a run's data step on disk, found again by what they depend on, so that no step tokenizes them twice.

They depend on the rows, the tokenizer and the task's settings of encoding: fine-tuning, distillation, recovery and the
scores of all variants read the same files, as do the runs of a sweep. Entries are written under another name and
renamed, so several processes may write the same one; the least recently used ones are removed beyond a limit.
"""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from compress import __version__
from compress.data.splits.row_store import ConcatenatedRows, StoredRows
from compress.data.tokenizer import TextTokenizer
from compress.model_folder.model_info import TaskInfo
from compress.storage.mapped_arrays import RaggedArray
from compress.tasks.base import Row

ENCODED_FOLDER = ".encoded"
"""Beside the folders of steps; removed by `compress clean`."""
SCHEMA_VERSION = 1
LIMIT = 4 * 2**30
"""Bytes of all entries."""
NOT_ENCODED = {"name", "metric", "threshold", "pooling", "max_answer"}
"""Fields of a task that examples do not depend on."""
FACTS, INDEX = "encoded.json", "index.npz"


class Encoded(NamedTuple):
    """What `EncodedRows` needs of an entry."""

    fields: Mapping[str, RaggedArray]
    counts: NDArray[np.int64]
    """Examples of each row."""
    cut: int
    """Rows that were truncated."""


def cache_entry(rows: Iterable[Row], task: TaskInfo, tokens: TextTokenizer) -> Path | None:
    """Return the folder of these rows' encoding; None for rows that are not those of a run's steps."""
    if not isinstance(rows, StoredRows | ConcatenatedRows) or rows.steps is None:
        return None
    settings = task.model_dump(mode="json", exclude=NOT_ENCODED)
    versions = [SCHEMA_VERSION, __version__, tokenizers.__version__]
    content = json.dumps([versions, rows.digest(), tokens.digest(), settings], sort_keys=True)
    return rows.steps / ENCODED_FOLDER / hashlib.sha256(content.encode()).hexdigest()[:32]


def field_file(folder: Path, name: str) -> Path:
    """Return the path of a field's numbers."""
    return folder / f"{name}.bin"


def write_index(folder: Path, encoded: Encoded) -> None:
    """Write what is needed to open the fields that are in ``folder``."""
    types = {name: field.values.dtype.char for name, field in encoded.fields.items()}
    facts = {"schema_version": SCHEMA_VERSION, "cut": encoded.cut, "types": types}
    (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")
    lengths = {name: field.lengths for name, field in encoded.fields.items() if not field.is_scalar}
    np.savez(folder / INDEX, allow_pickle=False, counts=encoded.counts, **lengths)


def read_entry(folder: Path) -> Encoded | None:
    """Open an entry and mark it as used; None if there is none, or it cannot be read and is to be written again."""
    try:
        facts = json.loads((folder / FACTS).read_bytes())
        with (folder / INDEX).open("rb") as stream, np.load(stream) as index:
            lengths = dict(index)
        ones = np.broadcast_to(np.int64(1), lengths["input_ids"].shape)
        fields = {
            name: RaggedArray(field_file(folder, name), dtype, lengths.get(name, ones), name not in lengths)
            for name, dtype in facts["types"].items()
        }
        with suppress(OSError):  # a disk that is read only
            (folder / FACTS).touch()
        return Encoded(fields, lengths["counts"], facts["cut"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None


def limit_size(cache: Path, limit: int = LIMIT) -> None:
    """Remove entries beyond ``limit`` bytes, the least recently used first; who reads them keeps their files."""
    used: dict[Path, float] = {}
    for facts in cache.glob(f"*/{FACTS}"):
        with suppress(OSError):  # another process removed it
            used[facts.parent] = facts.stat().st_mtime
    total = 0
    for number, entry in enumerate(sorted(used, key=used.__getitem__, reverse=True)):
        size = 0
        with suppress(OSError):
            size = sum(path.stat().st_size for path in entry.iterdir())
        if number and total + size > limit:  # the newest is about to be read, whatever its size
            shutil.rmtree(entry, ignore_errors=True)
        else:
            total += size
