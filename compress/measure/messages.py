"""What a session and its workers say to each other, one JSON object a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from compress.folder import VariantInfo
from compress.measure.facts import Facts
from compress.measure.workload import Call


class WorkerSpec(Facts):
    """What to open and what to feed it."""

    folder: str
    variant: VariantInfo | None
    device: Literal["cpu", "cuda"]
    threads: int
    cores: tuple[int, ...] | None
    batch: int
    length: int | None
    calls: tuple[Call, ...]
    """Batches of texts; empty at a fixed length."""
    warm: tuple[int, ...]
    """The calls to warm up on."""
    seed: int


class Order(Facts):
    """One turn: these calls, in whole passes, until the seconds are over; or the end."""

    do: Literal["turn", "close"]
    calls: tuple[int, ...] = ()
    seconds: float = 0.0


class Reply(Facts):
    """What a worker says; which fields are filled depends on what it was asked."""

    refused: str | None = None
    """The runtime or the device is not on this machine."""
    failed: str | None = None
    load_seconds: float | None = None
    call_seconds: float | None = None
    runs_with: Mapping[str, Any] = {}
    model: tuple[float, ...] = ()
    """Milliseconds."""
    end_to_end: tuple[float, ...] = ()
    peak_memory: int | None = None
    device_memory: int | None = None
