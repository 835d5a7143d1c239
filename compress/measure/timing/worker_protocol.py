"""What a session and its workers say to each other, one JSON object a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from compress.measure.interference.interference import Interference
from compress.measure.result_base import ResultModel
from compress.measure.timing.timing_inputs import Call
from compress.model_info import VariantInfo


class WorkerSpec(ResultModel):
    """What to open and what to feed it."""

    folder: str
    variant: VariantInfo | None
    device: Literal["cpu", "cuda"]
    threads: int
    cores: tuple[int, ...] | None
    """What the process is held to; None leaves it where the system puts it."""
    batch: int
    length: int | None
    calls: tuple[Call, ...]
    """Batches of texts; empty at a fixed length."""
    seed: int
    vocabulary: int | None = None
    """Word pieces that inputs of a fixed length are drawn from, the same for all jobs of a session; None: the model's
    own."""
    beside: tuple[tuple[int, ...], ...] = ()
    """Groups of other cores to listen to."""
    launched: float | None = None
    """When the process was started, in seconds since 1970."""
    imports: tuple[str, ...] = ()
    """Modules to import before it is held to its cores, so that several processes can start at once on all of them."""
    slowed: float = 0.0
    """Share of each call's time that is waited after it."""
    memory: int | None = None
    """Bytes of data that the process may hold; None does not limit it."""


class Order(ResultModel):
    """What to do next.

    `warm` runs the calls until their times are steady, `turn` times them in whole passes until the seconds are over,
    `load` has several callers ask at once for so long and for so many answers, `close` ends the process.
    """

    do: Literal["warm", "turn", "load", "close"]
    calls: tuple[int, ...] = ()
    seconds: float = 0.0
    callers: int = 1
    least: int = 0
    """Answers that all callers together are to get at least."""


class Reply(ResultModel):
    """What a worker says; which fields are filled depends on what it was asked."""

    refused: str | None = None
    """The runtime or the device is not on this machine, or a library is not installed."""
    failed: str | None = None
    load_seconds: float | None = None
    first_answer_seconds: float | None = None
    runs_with: Mapping[str, Any] = {}
    imports: tuple[str, ...] = ()
    """The heavy modules that opening the model needed."""
    energy: str | None = None
    """What energy is read from, or why it is not."""
    unwatched: str | None = None
    """Why nothing is known of what else the accelerator does; None where it is watched, or there is none."""
    call_seconds: float | None = None
    steady: bool | None = None
    """Whether warming up came to an end by itself."""
    lengths: tuple[int, ...] = ()
    """Padded pieces of each call of the order."""
    model: tuple[float, ...] = ()
    """Milliseconds."""
    model_waited: tuple[float, ...] = ()
    """What of each the process stood in line for a core."""
    end_to_end: tuple[float, ...] = ()
    end_to_end_waited: tuple[float, ...] = ()
    device: tuple[float, ...] = ()
    waits: tuple[float, ...] = ()
    """Milliseconds that callers waited."""
    seconds: float | None = None
    """From the first caller's start to the last one's end."""
    joules: float | None = None
    """Taken by the calls that are `metered`."""
    metered: int = 0
    heard: Interference | None = None
    resident_memory: int | None = None
    peak_memory: int | None = None
    device_memory: int | None = None
