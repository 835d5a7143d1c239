"""Times exported models against each other in this process, taking turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.measure.timing.latency import MIN_REMAINDER
from compress.measure.timing.timing_loop import UNTIMED_CALLS, time_passes
from compress.model_info import VariantInfo
from compress.prune.latency_table import LATENCY_VARIANTS
from compress.runtime.onnx_runtime import OnnxPredictor, make_session
from compress.runtime.predictor import Placement, Predictor
from compress.tasks.base import Arrays

TURN_SECONDS = 0.02
ROUNDS = 25
"""Rounds of two models, or as many as fit into the seconds given, but no fewer than `MIN_ROUNDS`."""
MIN_ROUNDS = 5
UNDISTURBED = 0.2
"""The quantile of a turn's call times that is used. A low one: calls after an interruption are slow, and longer calls
are interrupted more often, so a median would make large models look slower."""


class Comparison(NamedTuple):
    """The times of two models."""

    first: float
    """Milliseconds of a call of the first one."""
    ratio: float
    """The second one's time, as a share of the first one's."""


def compare_times(first: Predictor, second: Predictor, arrays: Arrays, seconds: float) -> Comparison:
    """Return the median time of the first model, and the median over rounds of the ratio of the two."""
    times: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(times) < MIN_ROUNDS or (len(times) < ROUNDS and time.perf_counter() < end):
        if len(times) % 2:
            later = _turn(second, arrays)
            times.append((_turn(first, arrays), later))
        else:
            times.append((_turn(first, arrays), _turn(second, arrays)))
    return Comparison(statistics.median(own for own, _ in times), statistics.median(b / a for a, b in times))


def _turn(predictor: Predictor, arrays: Arrays) -> float:
    """Return the milliseconds of an undisturbed call, without what it waited for a core."""

    def run(_: int) -> object:
        return predictor.predict(arrays)

    for call in range(UNTIMED_CALLS):
        run(call)
    calls = time_passes(run, [0], TURN_SECONDS)
    total = np.array(calls.total)
    waits = np.array(calls.waits) if calls.waits else 0.0
    return float(np.quantile(np.maximum(total - waits, MIN_REMAINDER * total), UNDISTURBED))


def open_variant(
    proto: onnx.ModelProto, variant: str, placement: Placement, options: Mapping[str, Any] = MappingProxyType({})
) -> Predictor:
    """Return a predictor of an exported graph in memory, in one of `LATENCY_VARIANTS`."""
    if (convert := LATENCY_VARIANTS[variant]) is not None:
        proto = resolve_name(convert)(proto)
    info = VariantInfo(name=variant, format="onnx", precision="", runtime="onnxruntime")
    return OnnxPredictor(make_session(proto.SerializeToString(), placement, options), placement, info)


def random_inputs(batch: int, length: int, vocabulary: int) -> Arrays:
    """Return inputs of exactly this length; which pieces they are does not matter for speed."""
    pieces: NDArray[np.int64] = np.random.default_rng(0).integers(0, vocabulary, size=(batch, length))
    return {"input_ids": pieces, "attention_mask": np.ones_like(pieces), "token_type_ids": np.zeros_like(pieces)}
