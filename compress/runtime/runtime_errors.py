"""Translates errors of runtimes: too little memory becomes OutOfMemory, all others a ModelError with the shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from compress.errors import ModelError, OutOfMemory
from compress.formats import BARE_FILES

MEMORY_WORDS = (
    "bad_alloc",
    "bad allocation",
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "failed to allocate",
    "unable to allocate",
    "not enough memory",
    "std::length_error",
)
"""Messages of allocators: torch's (CPU and CUDA), the runtimes', numpy's, the C++ library's."""

UNREADABLE_WORDS = ("Protobuf parsing failed", "No graph was found", "ParseFromIstream", "Unable to read the model")
"""Messages of runtimes about files that are not models, or only parts of one."""

PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .*? failed:)?")
"""The beginning of ONNX Runtime's messages: error codes, and the file, which our message names anyway."""


def is_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out."""
    message = str(error).lower()
    return isinstance(error, MemoryError) or any(word in message for word in MEMORY_WORDS)


def run_failure(runtime: str, variant: str, arrays: Mapping[str, NDArray[Any]], error: BaseException) -> ModelError:
    """Return the error for a batch that could not be run."""
    first = next(iter(arrays.values()))
    if is_memory(error):
        rows, length = first.shape[0], first.shape[-1]
        return OutOfMemory(f"a batch of {rows} rows of {length} tokens does not fit in memory.")
    shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
    return ModelError(f"{runtime} cannot run {variant} on {shapes}: {first_line(error)}")


def load_failure(runtime: str, name: str, error: BaseException) -> ModelError:
    """Return the error for a model that could not be opened."""
    if is_memory(error):
        return OutOfMemory(f"{name} does not fit in memory.")
    if any(words in str(error) for words in UNREADABLE_WORDS):
        return ModelError(f"{runtime} cannot read {name}: {_unreadable_reason(Path(name))}.")
    return ModelError(f"{runtime} cannot read {name}: {first_line(error)}")


def _unreadable_reason(file: Path) -> str:
    if file.is_file() and not file.stat().st_size:
        return "it is empty"
    each = BARE_FILES.get(file.suffix.lower())
    return f"it is truncated, or not {f'an {each.title} model' if each else 'a model'}"


def first_line(error: BaseException) -> str:
    """Return the first informative line: some runtimes begin with a blank one or with the place in their source."""
    lines = (line.strip() for line in str(error).splitlines())
    first = next((line for line in lines if line and "Exception from src/" not in line), type(error).__name__)
    return PREFIX.sub("", first)
