"""The fastest matrix products and memory copies of this machine, each timed by its best repetition, in a subprocess.

Matrix products have the sizes of a BERT layer (inputs of some hundred pieces by its weights) and a square one that
fills the caches; the weights are constants, as in a model, so that runtimes may rearrange them in advance. All kernels
are timed several times in turn, so that a longer disturbance does not affect one of them alone.
"""

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import describe_cpu_state, memory_limit, require
from compress.errors import CompressError
from compress.measure.interference import InterferenceMonitor, aggregate
from compress.measure.roofline.roofline import KernelRate, KernelRates, rank_rates
from compress.measure.timing.process_limits import Cores
from compress.measure.timing.worker_protocol import Task, serve_task
from compress.runtime.onnx_runtime import ORT_ERRORS, make_session
from compress.runtime.predictor import Placement

Size = tuple[int, int, int]
"""Rows, inner, columns."""
Multiply = Callable[[], object]

CPU_SIZES: tuple[Size, ...] = ((128, 384, 1536), (512, 768, 3072), (1024, 1024, 1024))
CUDA_SIZES: tuple[Size, ...] = ((4096, 768, 3072), (4096, 4096, 4096), (8192, 8192, 8192))
"""32 rows of 128 pieces by a layer of a base model, and two that fill the device."""
LAPS = 2
SECONDS = 0.1
"""Of timing one kernel at one size."""
MIN_REPETITIONS = 3
CUDA_CALLS = 10
"""Calls between two synchronisations: a single one takes no longer than the synchronisation."""
MIN_TRAFFIC = 2**28
"""Bytes of each of the two arrays that memory traffic is timed with, at least; the last cache's if that is more."""
CUDA_TRAFFIC = 2**30
MEMORY_SHARE = 8
"""The two arrays together take at most one part in so many of the memory."""


@dataclass(frozen=True)
class Kernel:
    """One way to multiply matrices."""

    name: str
    precision: str
    make: Callable[[Size, int], Multiply]
    """Returns the function to time for a size and a number of threads; raises where the kernel is missing."""
    calls: int = 1
    """Products that one call of the function computes."""


def time_kernels(task: Task) -> KernelRates:
    """Time all kernels of a device."""
    if task.device == "cuda":
        rates, missing = time_products(CUDA_KERNELS, CUDA_SIZES, task.threads)
        return KernelRates(rates=rank_rates([*rates, ("bandwidth", _time_cuda_copy())]), missing=missing)
    cores = Cores(tuple(sorted(os.sched_getaffinity(0)))) if sys.platform == "linux" else Cores()
    monitor = InterferenceMonitor(cores)
    before = monitor.read()
    rates, missing = time_products(CPU_KERNELS, CPU_SIZES, task.threads)
    rates += [("bandwidth", rate) for rate in time_traffic(task.threads, traffic_bytes())]
    noise = aggregate([monitor.since(before)], cores)
    return KernelRates(rates=rank_rates(rates), missing=missing, noise=noise)


def time_products(
    kernels: tuple[Kernel, ...], sizes: tuple[Size, ...], threads: int, seconds: float = SECONDS
) -> tuple[list[tuple[str, KernelRate]], dict[str, str]]:
    """Return rates with their precision, and why kernels are missing."""
    rates: list[tuple[Kernel, KernelRate]] = []
    missing: dict[str, str] = {}
    for size in sizes * LAPS:
        for kernel in kernels:
            if kernel.name in missing:
                continue
            try:
                duration = shortest(kernel.make(size, threads), seconds) / kernel.calls
            except CompressError as error:
                missing[kernel.name] = error.full_message
            except ORT_ERRORS as error:  # torch and ONNX Runtime raise where they have no kernel
                missing[kernel.name] = str(error).strip().partition("\n")[0]
            else:
                rate, shape = 2 * size[0] * size[1] * size[2] / duration, "x".join(map(str, size))
                rates.append((kernel, KernelRate(value=rate, kernel=kernel.name, size=shape)))
    return [(kernel.precision, rate) for kernel, rate in rates if kernel.name not in missing], missing


def shortest(run: Multiply, seconds: float) -> float:
    """Return the seconds of the fastest repetition; the first one, which prepares, does not count."""
    run()
    best, done = float("inf"), 0
    end = time.perf_counter() + seconds
    while done < MIN_REPETITIONS or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        done += 1
    return best


def floats(rows: int, columns: int) -> NDArray[np.float32]:
    """Return normally distributed numbers: zeros or infinities can be faster or slower than a model's values."""
    return np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)


def _numpy(size: Size, threads: int) -> Multiply:
    rows, inner, columns = size
    left, right, out = floats(rows, inner), floats(inner, columns), np.empty((rows, columns), np.float32)
    return lambda: np.matmul(left, right, out=out)


def _onnx_fp32(size: Size, threads: int) -> Multiply:
    return onnx_product("MatMul", floats(size[0], size[1]), floats(size[1], size[2]), threads)


def _onnx_int8(size: Size, threads: int) -> Multiply:
    """Unsigned activations and signed weights, as in our quantized models."""
    random = np.random.default_rng(0)
    left = random.integers(0, 256, size[:2], dtype=np.uint8)
    right = random.integers(-128, 128, size[1:], dtype=np.int8)
    return onnx_product("MatMulInteger", left, right, threads)


def onnx_product(operator: str, left: NDArray[Any], right: NDArray[Any], threads: int) -> Multiply:
    """Return a run of a graph of one product with constant weights, in ONNX Runtime."""
    require("onnx", "train")
    from onnx import numpy_helper, parser

    kind, result = ("float", "float") if operator == "MatMul" else ("uint8", "int32")
    source, target = f"{kind}[{len(left)}, {len(right)}]", f"{result}[{len(left)}, {right.shape[1]}]"
    graph = f"product ({source} left) => ({target} out) {{ out = {operator}(left, right) }}"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {graph}')
    model.graph.initializer.append(numpy_helper.from_array(right, "right"))
    session = make_session(model.SerializeToString(), Placement("cpu", threads), {})
    return lambda: session.run(["out"], {"left": left})


def _torch(kind: str, device: str) -> Callable[[Size, int], Multiply]:
    """`linear` in a floating-point type (fp32 without TF32), or the product of 8-bit integers."""

    def make(size: Size, threads: int) -> Multiply:
        torch = require("torch", "train")
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = False
        if kind == "int8":
            integers = partial(torch.randint, -128, 128, dtype=torch.int8, device=device)
            left, right = integers(size[:2]), integers(size[1:])
            if device == "cuda":  # cuBLAS wants columns contiguous
                right = right.t().contiguous().t()
            return _repeated(torch, lambda: torch._int_mm(left, right), device)
        left = torch.randn(size[0], size[1], device=device).to(getattr(torch, kind))
        weights = torch.randn(size[2], size[1], device=device).to(getattr(torch, kind))
        return _repeated(torch, lambda: torch.nn.functional.linear(left, weights), device)

    return make


def _repeated(torch: Any, product: Multiply, device: str) -> Multiply:
    """Return a run of one product on the CPU; on CUDA of `CUDA_CALLS` of them, and a wait for their end."""

    def run() -> None:
        with torch.inference_mode():
            for _ in range(CUDA_CALLS if device == "cuda" else 1):
                product()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def _torch_kernels(device: str, calls: int) -> tuple[Kernel, ...]:
    return (
        Kernel("torch fp32 linear", "fp32", _torch("float32", device), calls),
        Kernel("torch bf16 linear", "bf16", _torch("bfloat16", device), calls),
        Kernel("torch fp16 linear", "fp16", _torch("float16", device), calls),
        Kernel("torch _int_mm", "int8", _torch("int8", device), calls),
    )


CPU_KERNELS = (
    Kernel("numpy matmul", "fp32", _numpy),
    Kernel("onnxruntime MatMul", "fp32", _onnx_fp32),
    Kernel("onnxruntime MatMulInteger", "int8", _onnx_int8),
    *_torch_kernels("cpu", calls=1),
)
"""Every CPU kernel, with the precision whose limit it may set."""
CUDA_KERNELS = _torch_kernels("cuda", calls=CUDA_CALLS)


def traffic_bytes() -> int:
    """Return the size of one of two arrays that do not both fit in a cache, as far as memory allows."""
    wanted = max(MIN_TRAFFIC, describe_cpu_state().last_level_cache or 0)
    return min(wanted, memory_limit() // MEMORY_SHARE // 2) // 4096 * 4096


def time_traffic(threads: int, size: int, seconds: float = 0.5) -> list[KernelRate]:
    """Time reading two arrays, and copying one to the other (both directions count), with so many threads at once."""
    source, target = np.ones(size // 4, np.float32), np.ones(size // 4, np.float32)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:  # numpy releases the interpreter lock while it works
        read = shortest(lambda: list(pool.map(lambda pair: pair[0].sum() + pair[1].sum(), parts)), seconds)
        copied = shortest(lambda: list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), parts)), seconds)
    shown = f"{size / 2**20:.0f} MiB"
    return [
        KernelRate(value=2 * size / read, kernel="numpy sum (reads)", size=shown),
        KernelRate(value=2 * size / copied, kernel="numpy copy (reads and writes)", size=shown),
    ]


def _time_cuda_copy() -> KernelRate:
    import torch

    source = torch.ones(CUDA_TRAFFIC // 4, device="cuda")
    target = torch.empty_like(source)
    seconds = shortest(_repeated(torch, lambda: target.copy_(source), "cuda"), SECONDS) / CUDA_CALLS
    shown = f"{CUDA_TRAFFIC // 2**20} MiB"
    return KernelRate(value=2 * CUDA_TRAFFIC / seconds, kernel="torch copy (reads and writes)", size=shown)


if __name__ == "__main__":
    serve_task(Task, lambda task: [time_kernels(task)])
