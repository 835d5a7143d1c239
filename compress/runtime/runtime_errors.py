"""Translates errors of runtimes: too little memory becomes OutOfMemory, all others a ModelError with the shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from compress.errors import ModelError, OutOfMemory

MEMORY = re.compile(r"bad.alloc|out of memory|enough memory|(can't|cannot|to) allocate|length_error", re.IGNORECASE)
"""Messages of allocators: torch's (CPU and CUDA), the runtimes', numpy's, the C++ library's."""

UNREADABLE = re.compile(
    "Protobuf parsing failed|No graph was found|ParseFromIstream|ORT model verification failed|Unable to read the model"
    "|pugi::status_ok|is_valid_weights_range|Failed to load program|valid Flatbuffer|allocation is null"
)
"""Messages of runtimes about files that are not models, or only parts of one."""

NO_MODEL = "it is empty, truncated, or not a model."
"""What is said of such files."""

PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .*? failed:)?")
"""The beginning of ONNX Runtime's messages: error codes, and the file, which our message names anyway."""


def is_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out."""
    return isinstance(error, MemoryError) or MEMORY.search(str(error)) is not None


def run_failure(runtime: str, variant: str, arrays: Mapping[str, NDArray[Any]], error: BaseException) -> ModelError:
    """Return the error for a batch that could not be run."""
    if is_memory(error):
        shape = next(iter(arrays.values())).shape
        return OutOfMemory(f"a batch of {shape[0]} rows of {shape[-1]} tokens does not fit in memory.")
    shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
    return ModelError(f"{runtime} cannot run {variant} on {shapes}: {first_line(error)}")


def load_failure(runtime: str, model: Path | str, error: BaseException) -> ModelError:
    """Return the error for a model that could not be opened."""
    if is_memory(error):
        return OutOfMemory(f"{model} does not fit in memory.")
    reason = NO_MODEL if UNREADABLE.search(str(error)) else first_line(error)
    return ModelError(f"{runtime} cannot read {model}: {reason}")


def first_line(error: BaseException) -> str:
    """Return the first informative line: some runtimes begin with a blank one or with a line of their source code."""
    lines = (line.strip() for line in str(error).splitlines())
    first = next((line for line in lines if line and "Exception from src/" not in line), type(error).__name__)
    return PREFIX.sub("", first)


def root_cause(error: BaseException) -> BaseException:
    """Return the original error, which torch wraps in advice to its own developers."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
