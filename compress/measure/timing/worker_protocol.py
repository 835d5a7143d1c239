"""The messages between a session and its workers, one JSON object a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from compress.measure.interference.monitor import Interference
from compress.measure.result_base import ResultModel
from compress.measure.timing.timing_inputs import Call
from compress.model_info import VariantInfo


class WorkerSpec(ResultModel):
    """The model to open and its inputs."""

    folder: str
    variant: VariantInfo | None
    device: Literal["cpu", "cuda"]
    threads: int
    cores: tuple[int, ...] | None
    """Cores that the process is pinned to; None does not pin it."""
    batch: int
    length: int | None
    calls: tuple[Call, ...]
    """Batches of texts; empty at a fixed length."""
    seed: int
    vocabulary: int | None = None
    """Number of word pieces that inputs of a fixed length are drawn from, the same for all jobs of a session; None: the
    model's own."""
    neighbours: tuple[tuple[int, ...], ...] = ()
    """Groups of other cores to monitor."""
    launched: float | None = None
    """When the process was started, in seconds since 1970."""
    imports: tuple[str, ...] = ()
    """Modules to import before it is pinned, so that several processes can start at once on all cores."""
    delay: float = 0.0
    """Busy wait after each call, as a share of its time."""
    memory: int | None = None
    """Bytes of data that the process may allocate; None does not limit it."""


class Command(ResultModel):
    """What to do next.

    `warm_up` runs the calls until their times are steady, `turn` times them in full passes until the seconds are over,
    `load` runs a closed loop of several callers for so long and so many calls, `close` ends the process.
    """

    do: Literal["warm_up", "turn", "load", "close"]
    calls: tuple[int, ...] = ()
    seconds: float = 0.0
    callers: int = 1
    least: int = 0
    """Calls that all callers together must finish."""


class Reply(ResultModel):
    """A worker's reply; which fields are set depends on the command."""

    unsupported: str | None = None
    """The runtime or the device is not on this machine, or a library is not installed."""
    failed: str | None = None
    load_seconds: float | None = None
    first_answer_seconds: float | None = None
    runs_with: Mapping[str, Any] = {}
    imports: tuple[str, ...] = ()
    """The slow modules that opening the model imported."""
    energy: str | None = None
    """The source of energy readings, or why there is none."""
    unwatched: str | None = None
    """Why other work on the accelerator is not monitored; None where it is, or there is no accelerator."""
    call_seconds: float | None = None
    steady: bool | None = None
    """Whether warm-up ended with steady call times."""
    lengths: tuple[int, ...] = ()
    """Padded pieces of each call of the command."""
    model: tuple[float, ...] = ()
    """Milliseconds."""
    model_waits: tuple[float, ...] = ()
    """Milliseconds of each call that the process waited for a core."""
    end_to_end: tuple[float, ...] = ()
    end_to_end_waits: tuple[float, ...] = ()
    device: tuple[float, ...] = ()
    waits: tuple[float, ...] = ()
    """Milliseconds that callers waited."""
    seconds: float | None = None
    """From the first caller's start to the last one's end."""
    joules: float | None = None
    """Consumed by `energy_calls` calls."""
    energy_calls: int = 0
    interference: Interference | None = None
    resident_memory: int | None = None
    peak_memory: int | None = None
    device_memory: int | None = None
