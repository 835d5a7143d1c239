"""The limits of a CUDA device, through torch; timed by the device's own events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compress.environment import require
from compress.errors import DeviceUnavailable
from compress.measure.roofline.roofline_result import KernelRate

SIZES = ((4096, 768, 3072), (4096, 4096, 4096), (8192, 8192, 8192))
"""32 rows of 128 pieces by a layer of a base model, and two that fill the device."""
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
REPETITIONS = 10
"""Calls between two events: a single one would end before the events are told apart."""
LOOKS = 8
TRAFFIC = 2**30
"""Bytes of the array that is copied."""


def time_cuda() -> tuple[list[tuple[str, KernelRate]], dict[str, str]]:
    """Products in each precision, memory as `bandwidth`, and what is missing. fp32 is true fp32, without TF32."""
    torch = require("torch", "train")
    if not torch.cuda.is_available():
        raise DeviceUnavailable("torch sees no CUDA device on this machine.")
    torch.backends.cuda.matmul.allow_tf32 = False
    makers: dict[str, tuple[str, Callable[..., Callable[[], object]]]] = {
        f"torch {precision} linear": (precision, _linear(getattr(torch, kind)))
        for precision, kind in PRECISIONS.items()
    }
    makers["torch _int_mm"] = ("int8", _int8)
    rates, missing = [("bandwidth", _copy())], {}
    for name, (precision, make) in makers.items():
        try:
            with torch.inference_mode():
                rates += [(precision, _rate(name, make, size)) for size in SIZES]
        except RuntimeError as error:
            missing[name] = str(error).strip().partition("\n")[0]
    return rates, missing


def _rate(name: str, make: Callable[..., Callable[[], object]], size: tuple[int, int, int]) -> KernelRate:
    rows, inner, columns = size
    seconds = _shortest(make(rows, inner, columns))
    return KernelRate(value=2 * rows * inner * columns / seconds, kernel=name, size=f"{rows}x{inner}x{columns}")


def _linear(kind: Any) -> Callable[..., Callable[[], object]]:
    def make(rows: int, inner: int, columns: int) -> Callable[[], object]:
        import torch

        left = torch.randn(rows, inner, device="cuda", dtype=kind)
        weights = torch.randn(columns, inner, device="cuda", dtype=kind)
        return lambda: torch.nn.functional.linear(left, weights)

    return make


def _int8(rows: int, inner: int, columns: int) -> Callable[[], object]:
    import torch

    left = torch.randint(-128, 128, (rows, inner), device="cuda", dtype=torch.int8)
    weights = torch.randint(-128, 128, (columns, inner), device="cuda", dtype=torch.int8)
    return lambda: torch._int_mm(left, weights.t())


def _copy() -> KernelRate:
    import torch

    source = torch.ones(TRAFFIC // 4, device="cuda")
    target = torch.empty_like(source)
    seconds = _shortest(lambda: target.copy_(source))
    return KernelRate(
        value=2 * TRAFFIC / seconds, kernel="torch copy (reads and writes)", size=f"{TRAFFIC // 2**20} MiB"
    )


def _shortest(run: Callable[[], object]) -> float:
    """Seconds of a call in the best of several groups of calls."""
    for _ in range(3):
        run()
    best = float("inf")
    for _ in range(LOOKS):
        start, end = _event(), _event()
        start.record()
        for _ in range(REPETITIONS):
            run()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3 / REPETITIONS)
    return best


def _event() -> Any:
    import torch

    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
