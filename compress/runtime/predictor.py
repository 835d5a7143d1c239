"""The interface of all runtimes, arrays in and arrays out, and what they share: errors, and batches run row by row.

Too little memory becomes OutOfMemory, every other error of a runtime a ModelError with the shapes. Files that read one
row at a time get each row of a batch without its padding: a row's outputs do not depend on what shares its batch, and
short rows do not pay for long ones.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from compress.environment import describe_cpu
from compress.environment.os_probe import command_output
from compress.errors import ModelError, OutOfMemory
from compress.model_folder.model_info import VariantInfo
from compress.tasks.base import Arrays

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


@dataclass(frozen=True)
class Placement:
    """The device and the number of threads of a predictor."""

    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1


ONE_THREAD = Placement()
"""One CPU thread: the default placement."""


class Predictor(Protocol):
    """A loaded model; several threads may call it at once."""

    inputs: tuple[str, ...]

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch; extra arrays (labels) are ignored, outputs come as float32 numpy arrays by name."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return its configuration, as `describe_predictor` does."""
        ...


@runtime_checkable
class TimedOnDevice(Protocol):
    """A predictor that can read the clock of a CUDA device."""

    def device_milliseconds(self, arrays: Mapping[str, NDArray[Any]]) -> float:
        """Return the device's time for one forward pass, without copies to and from the host."""
        ...


def describe_predictor(
    variant: VariantInfo, placement: Placement, *, version: str, options: Mapping[str, Any], uses: str | None = None
) -> dict[str, Any]:
    """Return the configuration of a predictor, as results of measurements store it.

    Args:
        variant: what it runs.
        placement: where it runs.
        version: the library's.
        options: settings of the library.
        uses: what the library reports that it uses of the device; None where it reports nothing.
    """
    cpu = describe_cpu()
    return {
        "runtime": variant.runtime,
        "version": version,
        "device": placement.device,
        "device_name": cpu.model if placement.device == "cpu" else _cuda_name(),
        "threads": placement.threads,
        "instructions": cpu.instructions,
        "precision": variant.precision,
        "session": dict(variant.session),
        "options": dict(options),
        "uses": uses,
    }


def _cuda_name() -> str | None:
    """Return the name of the CUDA device, without torch; None where the driver reports none or devices differ."""
    names = set(command_output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines())
    return names.pop() if len(names) == 1 else None


def check_inputs(inputs: tuple[str, ...], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse a batch that lacks an input of the model."""
    missing = [name for name in inputs if name not in arrays]
    if missing:
        raise ModelError(f"the model takes {', '.join(inputs)}; {', '.join(missing)} was not given.")


def answers(names: Sequence[str]) -> list[str]:
    """Return the outputs that are read here: the tokens' states beside a text's embedding are for other tools."""
    return [name for name in names if name != "last_hidden_state" or "sentence_embedding" not in names]


def cast_inputs(types: Mapping[str, str | np.dtype[Any] | None], arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return the model's inputs in the types that it takes; None leaves an array as it is."""
    check_inputs(tuple(types), arrays)
    return {name: np.ascontiguousarray(arrays[name], dtype=kind) for name, kind in types.items()}


PER_TOKEN = ("start_logits", "end_logits", "last_hidden_state")
"""Outputs with a value per token in any model. Logits have one if they have three axes."""


def is_per_token(name: str, values: NDArray[np.float32]) -> bool:
    """Whether an output has a value per token, and so values at padding."""
    return name in PER_TOKEN or (name == "logits" and values.ndim == 3)


def run_rows(
    inputs: tuple[str, ...],
    arrays: Mapping[str, NDArray[Any]],
    padded_length: Callable[[int], int],
    run: Callable[[Arrays], Arrays],
) -> Arrays:
    """Return the outputs of a padded batch; those of padding are 0.

    Args:
        inputs: names of the arrays that the model takes.
        arrays: of the batch, each (rows, tokens).
        padded_length: from a row's number of tokens to the length that the model reads it with.
        run: from the arrays of one row (1, length) to its outputs.
    """
    check_inputs(inputs, arrays)
    given = {name: np.asarray(arrays[name]) for name in inputs}
    shapes = {array.shape for array in given.values()}
    if len(shapes) != 1 or any(len(shape) != 2 or 0 in shape for shape in shapes):
        shown = ", ".join(f"{name} {array.shape}" for name, array in given.items())
        raise ModelError(f"the model takes arrays of (rows, tokens), all of one shape and not empty; got {shown}.")
    ((rows, width),) = shapes
    ends = _ends(given.get("attention_mask", np.ones((rows, width))))
    results = []
    for index, end in enumerate(ends):
        padding = ((0, 0), (0, padded_length(end) - end))
        results.append(run({name: np.pad(array[index : index + 1, :end], padding) for name, array in given.items()}))
    return {name: np.concatenate([_as_wide(name, each[name], width) for each in results]) for name in results[0]}


def _ends(mask: NDArray[Any]) -> list[int]:
    """Return for each row the position after its last token that is not padding; 1 for rows of padding alone."""
    positions = np.arange(1, mask.shape[1] + 1)
    return [int(end) for end in np.maximum(1, (positions * (mask != 0)).max(axis=1))]


def _as_wide(name: str, values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Return a row's output with as many tokens as the batch where it has a value per token."""
    if not is_per_token(name, values):
        return values
    wide = np.zeros((1, width, *values.shape[2:]), np.float32)
    tokens = min(width, values.shape[1])
    wide[:, :tokens] = values[:, :tokens]
    return wide
