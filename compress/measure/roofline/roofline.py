"""The machine's own limits: the fastest matrix products and the widest memory traffic that any kernel here reaches.

They say how much of the machine a model uses. A limit is a maximum, so the best repetition of the best kernel counts.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median_low
from typing import Any, Literal

from pydantic import ValidationError

from compress.atomic_write import atomic_write
from compress.console import Console
from compress.data.loading.quickstart_dataset import cache_folder
from compress.environment import cuda_devices, describe, usable_cores, versions
from compress.errors import DeviceUnavailable, ModelError
from compress.measure.interference.interference import disturbances
from compress.measure.resources.flops import flops
from compress.measure.result_base import ResultModel
from compress.measure.roofline.roofline_result import KernelRate, KernelRates, rank_rates
from compress.measure.timing.latency import Latency, Noise
from compress.measure.timing.subprocess_task import SubprocessFailed, Task, run_in_subprocess
from compress.model_info import ShapeInfo

SCHEMA = 1
PATIENCE = 180.0
"""Seconds for all kernels; they take about ten."""
LIBRARIES = ("numpy", "onnxruntime", "onnxruntime-gpu", "onnx", "torch")
"""What kernels come from; another version, or one more of them, has other limits."""
WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}
"""Bytes of a weight."""


class MachineLimits(ResultModel):
    """What so many threads of this machine, or its accelerator, can do at most."""

    schema_version: int = SCHEMA
    device: Literal["cpu", "cuda"]
    device_name: str
    """The processor's model, or the accelerator's."""
    threads: int
    fp32: KernelRate | None = None
    bf16: KernelRate | None = None
    fp16: KernelRate | None = None
    int8: KernelRate | None = None
    bandwidth: float | None = None
    """Bytes a second between memory and processor."""
    bandwidth_kernel: str | None = None
    kernels: Mapping[str, tuple[KernelRate, ...]] = {}
    """Every kernel that was tried, by precision (and `bandwidth`), the best first."""
    missing: Mapping[str, str] = {}
    """Kernels that could not be tried, with the reason."""
    measured_at: str
    fingerprint: str
    versions: Mapping[str, str] = {}
    seconds: float | None = None
    """What measuring took."""
    noise: Noise | None = None
    """What else went on meanwhile; it can only have lowered the limits."""
    looks: int = 1
    """How often they were measured; the best of all of them counts."""

    @property
    def unstable(self) -> str | None:
        """What other work lowered them while they were measured, in words; None where the machine was calm."""
        return "; ".join(disturbances(self.noise)) or None

    def rate(self, precision: str) -> KernelRate | None:
        """The limit in `fp32`, `bf16`, `fp16` or `int8`; None where no kernel was there."""
        rates = {"fp32": self.fp32, "bf16": self.bf16, "fp16": self.fp16, "int8": self.int8}
        return rates.get(precision)


class LimitShares(ResultModel):
    """How much of a machine's limits a model uses while it runs."""

    compute: float | None = None
    """Of the matrix rate in its own precision."""
    bandwidth: float | None = None
    """Of the memory bandwidth, if every weight were read from memory once a call; above 1 where caches hold them."""
    kernel: str | None = None
    """Whose matrix rate that is."""
    operations_per_second: float | None = None
    bytes_per_second: float | None = None
    reason: str | None = None
    """Why a share is missing."""


def machine_limits(
    threads: int, device: Literal["cpu", "cuda"] = "cpu", console: Console | None = None, *, again: bool = False
) -> MachineLimits:
    """The limits of ``threads`` threads, from the cache where this machine and these libraries were measured before.

    Measuring takes about ten seconds in a process of its own. What was measured on a busy machine is `unstable` and
    measured again whenever it is asked for, until the machine is calm; the best of all looks counts. Raises
    DeviceUnavailable
    where the machine has no such device or fewer cores, ModelError where the process failed.

    Args:
        threads: of CPU kernels; a CUDA device has one limit whatever their number.
        device: whose limits.
        console: is told when it measures.
        again: measure whatever the cache holds, and replace it.
    """
    name, libraries = _device_name(threads, device), versions(LIBRARIES)
    machine = describe().fingerprint
    path = _place(name, machine, libraries, threads, device)
    kept = None if again else _read(path, threads)
    if kept is not None and kept.unstable is None:
        return kept
    speaker = console or Console("quiet")
    width = f" with {threads} thread{'s' * (threads > 1)}" if device == "cpu" else ""
    speaker.note(f"measuring the limits of {name}{width}, about ten seconds")
    start = time.perf_counter()
    found = _measure(threads, device, kept)
    limits = MachineLimits(
        device=device,
        device_name=name,
        threads=threads,
        **_best(found),
        kernels=found.rates,
        missing=found.missing,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=machine,
        versions=libraries,
        seconds=round(time.perf_counter() - start, 1),
        noise=found.noise,
        looks=kept.looks + 1 if kept else 1,
    )
    _write(path, limits)
    return limits


def _measure(threads: int, device: Literal["cpu", "cuda"], kept: MachineLimits | None) -> KernelRates:
    """Look anew; where an earlier look was disturbed, what it reached all the same counts too."""
    try:
        found = run_in_subprocess(
            "compress.measure.roofline.cpu_matmul_bench", Task(device=device, threads=threads), KernelRates, PATIENCE
        )
    except SubprocessFailed as failure:
        raise ModelError(f"the machine's limits could not be measured: {failure}") from None
    both = [found.rates, kept.kernels] if kept else [found.rates]
    pairs = ((precision, rate) for rates in both for precision, each in rates.items() for rate in each)
    return found.model_copy(update={"rates": rank_rates(pairs)})


def cached_limits(threads: int, device: Literal["cpu", "cuda"] = "cpu") -> MachineLimits | None:
    """The limits, where they were measured before on this machine, while it was calm, with these libraries.

    Nothing is measured.
    """
    try:
        name = _device_name(threads, device)
    except DeviceUnavailable:
        return None
    kept = _read(_place(name, describe().fingerprint, versions(LIBRARIES), threads, device), threads)
    return kept if kept is not None and kept.unstable is None else None


def shares_of_limits(
    latency: Latency, shape: ShapeInfo, limits: MachineLimits, precision: str, bytes_weights: int, batch: int = 1
) -> LimitShares:
    """How much of the limits a timed model uses.

    Compute is the operations of the middle call of a turn (by its padded length, all rows counted at that length) over
    the middle time, as a share of the matrix rate in the model's own precision: what is left to do at best. Time
    outside of matrix products (softmax, activations, quantizing) lowers it; a limit measured on a busy machine raises
    it. Bandwidth is every weight but the embeddings (of which a call reads a few rows), read from memory once a call,
    over the same time; small models are served from caches instead and may come out above 1.

    Args:
        latency: of a session; its `lengths` say what the calls were.
        shape: of the model.
        limits: of the same device and threads.
        precision: that the weights of its layers have.
        bytes_weights: of the weight files: no more is read than there is.
        batch: rows of a call.
    """
    if latency.model is None:
        return LimitShares(reason="it was not timed")
    if not latency.lengths:
        return LimitShares(reason="the session did not keep the lengths of its calls")
    seconds = latency.model.p50.value / 1e3
    operations = flops(shape, median_low(latency.lengths), batch)
    rate, read = limits.rate(precision), _bytes_read(shape, precision, bytes_weights)
    reasons = []
    if operations is None:
        reasons.append("its operations are not known")
    if rate is None:
        reasons.append(f"no {precision} limit was measured")
    return LimitShares(
        compute=operations / seconds / rate.value if operations is not None and rate is not None else None,
        bandwidth=read / seconds / limits.bandwidth if read is not None and limits.bandwidth else None,
        kernel=rate.kernel if rate else None,
        operations_per_second=operations / seconds if operations is not None else None,
        bytes_per_second=read / seconds if read is not None else None,
        reason="; ".join(reasons) or None,
    )


def _bytes_read(shape: ShapeInfo, precision: str, bytes_weights: int) -> float | None:
    """Bytes of weights that any call must read."""
    if precision not in WIDTHS:
        return None
    return float(min(bytes_weights, (shape.parameters - shape.embedding_parameters) * WIDTHS[precision]))


def _device_name(threads: int, device: Literal["cpu", "cuda"]) -> str:
    if device == "cuda":
        found = cuda_devices()
        if not found:
            raise DeviceUnavailable("this machine has no CUDA device.")
        return found[0].name
    if threads > usable_cores():
        raise DeviceUnavailable(f"{threads} threads were asked for and this machine has {usable_cores()} cores.")
    return describe().cpu.model


def _best(found: KernelRates) -> dict[str, Any]:
    """A limit is a maximum, so the best kernel sets it."""
    fields: dict[str, Any] = {precision: rates[0] for precision, rates in found.rates.items()}
    traffic: KernelRate | None = fields.pop("bandwidth", None)
    if traffic is not None:
        fields |= {"bandwidth": traffic.value, "bandwidth_kernel": traffic.kernel}
    return fields


def _place(name: str, machine: str, libraries: Mapping[str, str], threads: int, device: str) -> Path:
    """The file of what was measured with these threads and libraries; a CUDA device has one for any number of them."""
    width = threads if device == "cpu" else None
    mark = [SCHEMA, machine, device, name, width, sorted(libraries.items())]
    return cache_folder() / "limits" / f"{hashlib.sha256(json.dumps(mark).encode()).hexdigest()[:16]}.json"


def _read(path: Path, threads: int) -> MachineLimits | None:
    """What was measured before, as that of ``threads``; None where nothing was, or nothing that can be read."""
    try:
        return MachineLimits.model_validate_json(path.read_bytes()).model_copy(update={"threads": threads})
    except (OSError, ValidationError):
        return None


def _write(path: Path, limits: MachineLimits) -> None:
    """Keep them for the next time; where nothing can be written, the next time measures again."""
    with suppress(OSError):
        atomic_write(path, limits.model_dump_json(indent=1) + "\n")
