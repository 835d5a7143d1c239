"""Reads safetensors files without the library of that name, which the base install lacks.

A file begins with eight bytes, the length of its header; the header in JSON names type, shape and place of all arrays.
"""

import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

LENGTH_BYTES = 8
METADATA = "__metadata__"
TYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "i1", "U8": "u1", "BOOL": "?"}
"""numpy's names of those types that golden inputs and outputs, and tables, have."""


def read_header(file: BinaryIO) -> dict[str, Any]:
    """Read the header; the file is then at the first array."""
    header: dict[str, Any] = json.loads(file.read(int.from_bytes(file.read(LENGTH_BYTES), "little")))
    return header


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of a file by name.

    Raises:
        OSError, ValueError, LookupError, TypeError, AttributeError: the file cannot be read, or is damaged.
    """
    with path.open("rb") as file:
        header, content = read_header(file), file.read()
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        if name != METADATA:
            begin, end = entry["data_offsets"]
            arrays[name] = np.frombuffer(content[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays
