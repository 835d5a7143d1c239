"""The single argument of every builder: what to build, from what, with which rows and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compress.console import Console
from compress.errors import CompressError
from compress.model_info import VariantInfo
from compress.tasks.base import Arrays, Row

Batches = Sequence[Arrays]


@contextmanager
def named_folders(names: Mapping[Path, str]) -> Iterator[None]:
    """Write names in the place of these temporary folders' paths into errors, which are read after they are gone."""
    try:
        yield
    except CompressError as error:
        for path, name in names.items():
            error.message = error.message.replace(str(path), name)
            error.hint = error.hint and error.hint.replace(str(path), name)
        error.args = (error.message,)
        raise


@dataclass(frozen=True)
class BuildContext:
    """The input of one export or quantization."""

    variant: VariantInfo
    """The variant to build, as compress.json will describe it."""
    source: Path
    """The folder of the variant it is made from, or the model folder."""
    work: Path
    """An existing folder that receives the result."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the method."""
    seed: int = 0
    console: Console = field(default_factory=lambda: Console("quiet"))
    parity: Mapping[int, Batches] = field(default_factory=dict)
    """By batch size, encoded rows of train on which outputs are compared, beside golden inputs."""
    calibration: Callable[[], Batches] = tuple
    """Draws encoded rows of train from which a static quantizer takes its ranges."""
    train_rows: Callable[[], Sequence[Row]] = tuple
    """Draws rows of train, for methods that compare scores while they quantize."""
    runs_elsewhere: bool = False
    """Whether the result is also wanted where its runtime cannot run here; its outputs are not compared then."""
