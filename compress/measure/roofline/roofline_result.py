"""What kernels reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compress.measure.result_base import ResultModel
from compress.measure.timing.latency import Noise


class KernelRate(ResultModel):
    """The best that one kernel did."""

    value: float
    """Operations a second (a multiplication and an addition are two), or bytes a second."""
    kernel: str
    """`onnxruntime MatMul`, `torch bf16 linear` …"""
    size: str
    """At which it was: rows x inner x columns, or bytes."""


class KernelRates(ResultModel):
    """What was reached."""

    rates: Mapping[str, tuple[KernelRate, ...]]
    """Matrix products by precision, and memory as `bandwidth`; the best first."""
    missing: Mapping[str, str] = {}
    """Kernels that are not there, with the reason."""
    noise: Noise | None = None
    """What else went on meanwhile."""


def rank_rates(rates: Iterable[tuple[str, KernelRate]]) -> dict[str, tuple[KernelRate, ...]]:
    """By precision, the best first, each kernel once."""
    best: dict[tuple[str, str], KernelRate] = {}
    for precision, rate in rates:
        place = (precision, rate.kernel)
        if place not in best or rate.value > best[place].value:
            best[place] = rate
    found: dict[str, tuple[KernelRate, ...]] = {}
    for (precision, _), rate in sorted(best.items(), key=lambda pair: -pair[1].value):
        found[precision] = (*found.get(precision, ()), rate)
    return found
