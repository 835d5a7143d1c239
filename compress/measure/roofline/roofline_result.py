"""The rates of kernels, as the benchmark subprocess returns them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compress.measure.result_base import ResultModel
from compress.measure.timing.latency import Noise


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
