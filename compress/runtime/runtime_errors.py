"""What runtimes raise, in our words: too little memory is told as such, everything else with the shapes it met."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from compress.errors import ModelError, OutOfMemory

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
"""How allocators say it: torch's (CPU and CUDA), ONNX Runtime's arena, OpenVINO's, numpy's, the C++ library's."""

UNREADABLE_WORDS = ("Protobuf parsing failed", "No graph was found", "ParseFromIstream", "Unable to read the model")
"""How ONNX Runtime and OpenVINO say that a file is no model, or only a part of one."""

PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .*? failed:)?")
"""What ONNX Runtime begins its messages with: codes that mean nothing to people, and the file, which we name anyway."""


def is_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    told = str(error).lower()
    return isinstance(error, MemoryError) or any(word in told for word in MEMORY_WORDS)


def run_failure(runtime: str, variant: str, arrays: Mapping[str, NDArray[Any]], error: BaseException) -> ModelError:
    """What is told when a batch could not be run."""
    first = next(iter(arrays.values()))
    if is_memory(error):
        rows, length = first.shape[0], first.shape[-1]
        return OutOfMemory(f"a batch of {rows} rows of {length} pieces does not fit in memory.")
    shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
    return ModelError(f"{runtime} cannot run {variant} on {shapes}: {first_line(error)}")


def load_failure(runtime: str, name: str, error: BaseException) -> ModelError:
    """What is told when a model could not be opened."""
    if is_memory(error):
        return OutOfMemory(f"{name} does not fit in memory.")
    if any(words in str(error) for words in UNREADABLE_WORDS):
        return ModelError(f"{runtime} cannot read {name}: {_no_model(Path(name))}.")
    return ModelError(f"{runtime} cannot read {name}: {first_line(error)}")


def _no_model(file: Path) -> str:
    if file.is_file() and not file.stat().st_size:
        return "it is empty"
    return f"it is cut off, or no {'OpenVINO model' if file.suffix.lower() == '.xml' else 'ONNX file'}"


def first_line(error: BaseException) -> str:
    """The first line that says something: some runtimes begin with a blank one or with where it was thrown."""
    lines = (line.strip() for line in str(error).splitlines())
    first = next((line for line in lines if line and "Exception from src/" not in line), type(error).__name__)
    return PREFIX.sub("", first)
