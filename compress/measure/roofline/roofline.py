"""The machine's limits: the highest matrix rate and memory bandwidth that any kernel here reaches, cached by machine.

They show how much of the machine a model uses. A limit is a maximum, so the best repetition of the best kernel counts.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median_low
from typing import Any, Literal

from pydantic import ValidationError

from compress.console import Console
from compress.environment import cuda_devices, describe, usable_cores, versions
from compress.errors import DeviceUnavailable, ModelError, pluralize
from compress.measure.interference import instabilities
from compress.measure.resources.footprint import flops
from compress.measure.result_base import ResultModel
from compress.measure.timing.latency import Latency, Noise
from compress.measure.timing.worker_process import WorkerLost, run_in_subprocess
from compress.measure.timing.worker_protocol import Task
from compress.model_folder.model_info import ShapeInfo
from compress.storage.atomic_write import atomic_write
from compress.storage.file_names import cache_folder

SCHEMA = 1
TIMEOUT = 180.0
"""Seconds for all kernels; they take about ten."""
MAX_ATTEMPTS = 3
"""Measurements on a busy machine after which the best of them is used."""
KERNEL_LIBRARIES = ("numpy", "onnxruntime", "onnxruntime-gpu", "onnx", "torch")
"""The libraries of the kernels; another version, or one more of them, has other limits."""
WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}
"""Bytes of a weight."""


class KernelRate(ResultModel):
    """The best rate of one kernel."""

    value: float
    """Operations a second (a multiplication and an addition are two), or bytes a second."""
    kernel: str
    """`onnxruntime MatMul`, `torch bf16 linear` …"""
    size: str
    """Of the best product: rows x inner x columns; or bytes."""


class KernelRates(ResultModel):
    """The rates of all kernels of a device."""

    rates: Mapping[str, tuple[KernelRate, ...]]
    """Matrix products by precision, and memory as `bandwidth`; the best first."""
    missing: Mapping[str, str] = {}
    """Kernels that could not be timed, with the reason."""
    noise: Noise | None = None
    """Interference meanwhile."""


class MachineLimits(ResultModel):
    """The highest rates of so many threads of this machine, or of its accelerator."""

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
    """Every kernel that was timed, by precision (and `bandwidth`), the best first."""
    missing: Mapping[str, str] = {}
    """Kernels that could not be timed, with the reason."""
    measured_at: str
    fingerprint: str
    versions: Mapping[str, str] = {}
    seconds: float | None = None
    """Duration of the measurement."""
    noise: Noise | None = None
    """Interference meanwhile; it can only have lowered the limits."""
    looks: int = 1
    """How often they were measured; the best of all measurements counts."""

    @property
    def unstable(self) -> str | None:
        """The other work that lowered them while they were measured; None where there was none."""
        return "; ".join(instabilities(self.noise)) or None

    def rate(self, precision: str) -> KernelRate | None:
        """Return the limit in `fp32`, `bf16`, `fp16` or `int8`; None without a kernel."""
        return {"fp32": self.fp32, "bf16": self.bf16, "fp16": self.fp16, "int8": self.int8}.get(precision)


class LimitShares(ResultModel):
    """How much of a machine's limits a model uses while it runs."""

    compute: float | None = None
    """Of the matrix rate in its own precision."""
    bandwidth: float | None = None
    """Of the memory bandwidth, if every weight were read from memory once a call; above 1 where caches hold them."""
    kernel: str | None = None
    """The kernel that set that matrix rate."""
    operations_per_second: float | None = None
    bytes_per_second: float | None = None
    reason: str | None = None
    """Why a share is missing."""


def machine_limits(
    threads: int, device: Literal["cpu", "cuda"] = "cpu", console: Console | None = None
) -> MachineLimits:
    """Return the limits of ``threads`` threads, from the cache if this machine and its libraries were measured before.

    Measuring takes about ten seconds in a subprocess. A measurement on a busy machine is `unstable` and repeated the
    next time, up to `MAX_ATTEMPTS` times; the best of all counts. Raises DeviceUnavailable where the machine lacks the
    device or has fewer cores, ModelError where the subprocess failed.

    Args:
        threads: of CPU kernels; a CUDA device has one limit for any number of them.
        device: whose limits.
        console: shows that it measures.
    """
    path, identity = _cache_entry(threads, device)
    cached = _read(path, threads)
    if cached is not None and (cached.unstable is None or cached.looks >= MAX_ATTEMPTS):
        return cached
    width = f" with {pluralize(threads, 'thread')}" if device == "cpu" else ""
    (console or Console("quiet")).note(f"measuring the limits of {identity['device_name']}{width}, about ten seconds")
    start, task = time.perf_counter(), Task(device=device, threads=threads)
    try:
        measured = run_in_subprocess("compress.measure.roofline.matmul_bench", task, KernelRates, TIMEOUT)
    except WorkerLost as failure:
        raise ModelError(f"the machine's limits could not be measured: {failure}") from None
    known = [*measured.rates.items(), *(cached.kernels.items() if cached else ())]
    kernels = rank_rates((name, rate) for name, ranked in known for rate in ranked)
    best: dict[str, Any] = {precision: rates[0] for precision, rates in kernels.items()}
    traffic: KernelRate | None = best.pop("bandwidth", None)
    limits = MachineLimits(
        **identity,
        **best,
        bandwidth=traffic.value if traffic else None,
        bandwidth_kernel=traffic.kernel if traffic else None,
        kernels=kernels,
        missing=measured.missing,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - start, 1),
        noise=measured.noise,
        looks=cached.looks + 1 if cached else 1,
    )
    with suppress(OSError):  # where nothing can be written, the next run measures again
        atomic_write(path, limits.model_dump_json(indent=1) + "\n")
    return limits


def cached_limits(threads: int, device: Literal["cpu", "cuda"] = "cpu") -> MachineLimits | None:
    """Return the limits if they were measured before on this machine, undisturbed, with these libraries."""
    try:
        cached = _read(_cache_entry(threads, device)[0], threads)
    except DeviceUnavailable:
        return None
    return cached if cached is not None and cached.unstable is None else None


def rank_rates(rates: Iterable[tuple[str, KernelRate]]) -> dict[str, tuple[KernelRate, ...]]:
    """Return the best rate of each kernel, by precision, the best kernel first."""
    best: dict[tuple[str, str], KernelRate] = {}
    for precision, rate in rates:
        key = (precision, rate.kernel)
        if key not in best or rate.value > best[key].value:
            best[key] = rate
    ranked: dict[str, tuple[KernelRate, ...]] = {}
    for (precision, _), rate in sorted(best.items(), key=lambda pair: -pair[1].value):
        ranked[precision] = (*ranked.get(precision, ()), rate)
    return ranked


def find_limits(limits: Iterable[MachineLimits], device: str, threads: int) -> MachineLimits | None:
    """Return the limits of a device at a number of threads."""
    return next((one for one in limits if (one.device, one.threads) == (device, threads)), None)


def shares_of_limits(
    latency: Latency, shape: ShapeInfo, limits: MachineLimits, precision: str, bytes_weights: int, batch: int = 1
) -> LimitShares:
    """Return how much of the limits a timed model uses.

    Compute is the operations of the median call of a turn (by its padded length, all rows counted at that length) over
    the median time, as a share of the matrix rate in the model's own precision: the rest could be gained.
    Time outside of matrix products (softmax, activations, quantizing) lowers it; a limit measured on a busy machine
    raises it. Bandwidth is every weight but the embeddings (of which a call reads a few rows), read from memory once a
    call, over the same time; small models are served from caches instead and may come out above 1.

    Args:
        latency: of a session, with the `lengths` of its calls.
        shape: of the model.
        limits: of the same device and threads.
        precision: of the weights of its layers.
        bytes_weights: size of the weight files, an upper limit of the bytes read.
        batch: rows of a call.
    """
    if latency.model is None:
        return LimitShares(reason="it was not timed")
    if not latency.lengths:
        return LimitShares(reason="the session did not record the lengths of its calls")
    seconds = latency.model.p50.value / 1e3
    operations = flops(shape, median_low(latency.lengths), batch)
    operation_rate = None if operations is None else operations / seconds
    rate, byte_rate = limits.rate(precision), None
    if precision in WIDTHS:
        read = min(bytes_weights, (shape.parameters - shape.embedding_parameters) * WIDTHS[precision])
        byte_rate = read / seconds
    missing = (
        "its number of operations is unknown" if operation_rate is None else "",
        f"no {precision} limit was measured" if rate is None else "",
    )
    return LimitShares(
        compute=operation_rate / rate.value if operation_rate is not None and rate else None,
        bandwidth=byte_rate / limits.bandwidth if byte_rate is not None and limits.bandwidth else None,
        kernel=rate.kernel if rate else None,
        operations_per_second=operation_rate,
        bytes_per_second=byte_rate,
        reason="; ".join(filter(None, missing)) or None,
    )


def _device_name(threads: int, device: Literal["cpu", "cuda"]) -> str:
    if device == "cuda":
        devices = cuda_devices()
        if not devices:
            raise DeviceUnavailable("this machine has no CUDA device.")
        return devices[0].name
    if threads > usable_cores():
        raise DeviceUnavailable(f"{threads} threads were requested and this machine has {usable_cores()} cores.")
    return describe().cpu.model


def _cache_entry(threads: int, device: Literal["cpu", "cuda"]) -> tuple[Path, dict[str, Any]]:
    """Return the cache file and the fields it is named by; a CUDA device has one for any number of threads."""
    name, machine, libraries = _device_name(threads, device), describe().fingerprint, versions(KERNEL_LIBRARIES)
    key = [SCHEMA, machine, device, name, threads if device == "cpu" else None, sorted(libraries.items())]
    path = cache_folder() / "limits" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"
    identity = {"device": device, "device_name": name, "threads": threads}
    return path, identity | {"fingerprint": machine, "versions": libraries}


def _read(path: Path, threads: int) -> MachineLimits | None:
    """Return the cached limits as those of ``threads``; None where the file is missing or invalid."""
    try:
        return MachineLimits.model_validate_json(path.read_bytes()).model_copy(update={"threads": threads})
    except (OSError, ValidationError):
        return None
