"""The fastest kernels of this machine, each timed by its best repetition; runs in a process of its own.

Matrix products have the sizes of a BERT layer (inputs of some hundred pieces by its weights) and a square one that
fills the caches; the weights are constants, as in a model, so that runtimes may arrange them beforehand. All kernels
are looked at several times over, so that a disturbance that lasts does not fall on one of them alone.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import describe_cpu_state, memory_limit, require
from compress.errors import CompressError, DeviceUnavailable
from compress.measure.interference.interference import InterferenceMonitor, aggregate
from compress.measure.roofline.roofline_result import KernelRate, KernelRates, rank_rates
from compress.measure.timing.subprocess_task import Task, serve_subprocess
from compress.runtime.onnx_runtime import ORT_ERRORS, make_session
from compress.runtime.predictor import Placement

Size = tuple[int, int, int]
"""Rows, inner, columns."""
Run = Callable[[], object]

SIZES: tuple[Size, ...] = ((128, 384, 1536), (512, 768, 3072), (1024, 1024, 1024))
LAPS = 2
SECONDS = 0.1
"""Of one look at one kernel at one size."""
LEAST_REPETITIONS = 3
LEAST_TRAFFIC = 2**28
"""Bytes of each of the two arrays that memory traffic is timed with, at least; the last cache's where that is more."""
MEMORY_SHARE = 8
"""Those arrays together take no more than one part in so many of the memory."""


@dataclass(frozen=True)
class Kernel:
    """One way to multiply matrices."""

    name: str
    precision: str
    make: Callable[[Size, int], Run]
    """From a size and a number of threads to what is timed; raises where the kernel is not there."""


def time_kernels(asked: Task) -> KernelRates:
    """Time everything that a device has kernels for."""
    if asked.device == "cuda":
        from compress.measure.roofline.cuda_matmul_bench import time_cuda

        rates, missing = time_cuda()
        return KernelRates(rates=rank_rates(rates), missing=missing)
    own = tuple(sorted(os.sched_getaffinity(0))) if sys.platform == "linux" else ()
    listener = InterferenceMonitor(own)
    before = listener.look()
    rates, missing = time_products(CPU_KERNELS, SIZES, asked.threads)
    rates += [("bandwidth", rate) for rate in time_traffic(asked.threads, traffic_bytes())]
    return KernelRates(rates=rank_rates(rates), missing=missing, noise=aggregate([listener.heard(before)], len(own)))


def time_products(
    kernels: tuple[Kernel, ...], sizes: tuple[Size, ...], threads: int, seconds: float = SECONDS
) -> tuple[list[tuple[str, KernelRate]], dict[str, str]]:
    """Rates with their precision, and why kernels are missing."""
    found: list[tuple[Kernel, KernelRate]] = []
    missing: dict[str, str] = {}
    for size in sizes * LAPS:
        for kernel in kernels:
            if kernel.name in missing:
                continue
            try:
                rate = 2 * size[0] * size[1] * size[2] / shortest(kernel.make(size, threads), seconds)
            except CompressError as error:
                missing[kernel.name] = " ".join(filter(None, [error.message, error.hint]))
            except (RuntimeError, *ORT_ERRORS) as error:  # what torch and ONNX Runtime raise where they have no kernel
                missing[kernel.name] = str(error).strip().partition("\n")[0]
            else:
                found.append((kernel, KernelRate(value=rate, kernel=kernel.name, size="x".join(map(str, size)))))
    return [(kernel.precision, rate) for kernel, rate in found if kernel.name not in missing], missing


def shortest(run: Run, seconds: float) -> float:
    """Seconds of the fastest repetition; the first ones, which prepare, do not count."""
    run()
    best, done = float("inf"), 0
    end = time.perf_counter() + seconds
    while done < LEAST_REPETITIONS or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        done += 1
    return best


def floats(rows: int, columns: int) -> NDArray[np.float32]:
    """Plain numbers: zeros or infinities can be faster or slower than what models hold."""
    return np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)


def bytes_of(kind: type[np.int8] | type[np.uint8], rows: int, columns: int) -> NDArray[Any]:
    """All values that 8 bits hold."""
    span = np.iinfo(kind)
    return np.random.default_rng(0).integers(span.min, span.max, (rows, columns), dtype=kind, endpoint=True)


def _numpy(size: Size, threads: int) -> Run:
    rows, inner, columns = size
    left, right, out = floats(rows, inner), floats(inner, columns), np.empty((rows, columns), np.float32)
    return lambda: np.matmul(left, right, out=out)


def _onnx_fp32(size: Size, threads: int) -> Run:
    return onnx_product("MatMul", floats(size[0], size[1]), floats(size[1], size[2]), threads)


def _onnx_int8(size: Size, threads: int) -> Run:
    """Unsigned activations and signed weights, as in a model of ours."""
    return onnx_product(
        "MatMulInteger", bytes_of(np.uint8, size[0], size[1]), bytes_of(np.int8, size[1], size[2]), threads
    )


def onnx_product(operator: str, left: NDArray[Any], right: NDArray[Any], threads: int) -> Run:
    """A graph of one product with constant weights, in ONNX Runtime."""
    onnx = require("onnx", "train")
    from onnx import numpy_helper

    helper, types = onnx.helper, onnx.TensorProto
    given = helper.np_dtype_to_tensor_dtype(left.dtype)
    made = types.FLOAT if operator == "MatMul" else types.INT32
    graph = helper.make_graph(
        [helper.make_node(operator, ["left", "right"], ["out"])],
        "product",
        [helper.make_tensor_value_info("left", given, list(left.shape))],
        [helper.make_tensor_value_info("out", made, [left.shape[0], right.shape[1]])],
        [numpy_helper.from_array(right, "right")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = make_session(model.SerializeToString(), Placement("cpu", threads), {})
    return lambda: session.run(["out"], {"left": left})


def _torch(kind: str) -> Callable[[Size, int], Run]:
    def make(size: Size, threads: int) -> Run:
        torch = require("torch", "train")
        torch.set_num_threads(threads)
        left = torch.from_numpy(floats(size[0], size[1])).to(getattr(torch, kind))
        weights = torch.from_numpy(floats(size[2], size[1])).to(getattr(torch, kind))

        def run() -> object:
            with torch.inference_mode():
                return torch.nn.functional.linear(left, weights)

        return run

    return make


def _torch_int8(size: Size, threads: int) -> Run:
    torch = require("torch", "train")
    torch.set_num_threads(threads)
    left = torch.from_numpy(bytes_of(np.int8, size[0], size[1]))
    right = torch.from_numpy(bytes_of(np.int8, size[1], size[2]))
    return lambda: torch._int_mm(left, right)


CPU_KERNELS = (
    Kernel("numpy matmul", "fp32", _numpy),
    Kernel("onnxruntime MatMul", "fp32", _onnx_fp32),
    Kernel("torch fp32 linear", "fp32", _torch("float32")),
    Kernel("torch bf16 linear", "bf16", _torch("bfloat16")),
    Kernel("torch fp16 linear", "fp16", _torch("float16")),
    Kernel("onnxruntime MatMulInteger", "int8", _onnx_int8),
    Kernel("torch _int_mm", "int8", _torch_int8),
)
"""Every kernel on CPUs, with the precision whose limit it may set."""


def traffic_bytes() -> int:
    """The size of one of two arrays that do not both stay in a cache, as far as memory allows."""
    wanted = max(LEAST_TRAFFIC, describe_cpu_state().last_level_cache or 0)
    return min(wanted, memory_limit() // MEMORY_SHARE // 2) // 4096 * 4096


def time_traffic(threads: int, size: int, seconds: float = 0.5) -> list[KernelRate]:
    """Reading two arrays, and copying one into the other (both ways count), by so many threads at once."""
    if size <= 0:
        raise DeviceUnavailable("there is no memory to time.")
    source, target = np.ones(size // 4, np.float32), np.ones(size // 4, np.float32)
    parts = [(source[cut], target[cut]) for cut in _cuts(len(source), threads)]
    with ThreadPoolExecutor(threads) as pool:  # numpy lets other threads run while it works
        read = shortest(lambda: list(pool.map(lambda pair: pair[0].sum() + pair[1].sum(), parts)), seconds)
        copied = shortest(lambda: list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), parts)), seconds)
    shown = f"{size / 2**20:.0f} MiB"
    return [
        KernelRate(value=2 * size / read, kernel="numpy sum (reads)", size=shown),
        KernelRate(value=2 * size / copied, kernel="numpy copy (reads and writes)", size=shown),
    ]


def _cuts(length: int, parts: int) -> Iterator[slice]:
    edges = [length * part // parts for part in range(parts + 1)]
    return (slice(first, last) for first, last in itertools.pairwise(edges))


if __name__ == "__main__":
    serve_subprocess(Task, time_kernels)
