"""Measures a latency table: models with random weights, all layers alike, timed against the one with the most.

They are timed in this process, taking turns.
"""

import statistics
import time
from collections.abc import Mapping
from functools import partial
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.console import Console
from compress.environment import describe_cpu
from compress.export.tune_ort_session import fastest_options
from compress.measure.timing.round_statistics import MIN_REMAINDER
from compress.measure.timing.timing_loop import UNTIMED_CALLS, time_passes
from compress.model_folder.model_info import ShapeInfo, VariantInfo
from compress.prune.latency_table import LATENCY_VARIANTS, LatencyTable
from compress.prune.random_models import VOCABULARY, RandomModels, Sizes
from compress.runtime.onnx_runtime import OnnxPredictor, make_session
from compress.runtime.predictor import Placement, Predictor
from compress.tasks.base import Arrays

POINTS = 9
"""Numbers of heads, and widths, that are timed, at most: between them times change steadily."""
SECONDS = 1.5
"""For each of them."""


def measure_latency(
    shape: ShapeInfo,
    variant: str,
    placement: Placement,
    batch: int,
    length: int,
    *,
    round_to: int = 16,
    console: Console | None = None,
) -> LatencyTable:
    """Return the latency table of models as large as ``shape`` at most, in one variant, on this machine.

    Args:
        shape: of the model before pruning.
        variant: one of `LATENCY_VARIANTS`.
        placement: device and threads.
        batch: rows of each input.
        length: word pieces of each row.
        round_to: widths are multiples of this.
        console: shows progress.
    """
    models = RandomModels(shape, length)
    most, arrays = models.most, random_inputs(batch, length, VOCABULARY)
    whole = models.graph(shape.layers, most)
    options, _ = fastest_options(lambda each: partial(open_variant(whole, variant, placement, each).predict, arrays))
    reference = open_variant(whole, variant, placement, options)
    grid = _grid(most, round_to)
    least = min(grid, default=most)
    timed = [(shape.layers, sizes) for sizes in grid] + [(1, least)] * (shape.layers > 1)
    ratios: dict[tuple[int, Sizes], float] = {(shape.layers, most): 1.0}
    milliseconds = []
    with (console or Console("quiet")).progress(len(timed), "latency", "models") as progress:
        for layers, sizes in timed:
            other = open_variant(models.graph(layers, sizes), variant, placement, options)
            first, ratios[layers, sizes] = compare_times(reference, other, arrays, SECONDS)
            milliseconds.append(first)
            progress.advance(note=f"depth {layers}, heads {sizes[0]}, FFN {sizes[1]}")
    unit = float(np.median(milliseconds))
    whole_depth = {sizes: unit * ratio for (layers, sizes), ratio in ratios.items() if layers == shape.layers}
    return LatencyTable(
        variant=variant,
        processor=describe_cpu().model,
        threads=placement.threads,
        batch=batch,
        length=length,
        family=shape.family,
        hidden=shape.hidden,
        head_size=models.head_size,
        layers=shape.layers,
        session=options,
        **_parts(whole_depth, unit * ratios[1, least], shape.layers),
    )


def _grid(most: Sizes, round_to: int) -> list[Sizes]:
    """Return the sizes that are timed beside the largest: fewer heads, narrower FFNs, and the least of both."""
    blocks = -(-most[1] // round_to)
    heads = sorted({round(each) for each in np.linspace(1, most[0], POINTS)})
    widths = sorted({min(round(each) * round_to, most[1]) for each in np.linspace(1, blocks, POINTS)})
    along = {(each, most[1]) for each in heads} | {(most[0], width) for width in widths}
    return sorted((along | {(heads[0], widths[0])}) - {most})


def _parts(times: Mapping[Sizes, float], single: float, layers: int) -> dict[str, Any]:
    """Return the table's times: those of the smallest model of this depth, and what each size adds to a layer of it.

    What heads and neurons add is measured beside the most of the other; scaled so that the largest model is exact.
    ``single`` is the time of one layer of the smallest sizes, with all that is not in a layer.
    """
    most, least = max(times), min(times)

    def beyond(axis: int) -> dict[int, float]:
        along = {sizes[axis]: time for sizes, time in times.items() if sizes[1 - axis] == most[1 - axis]}
        return {size: max(0.0, along[size] - along[least[axis]]) / layers for size in sorted(along)}

    attention, ffn = beyond(0), beyond(1)
    total = layers * (attention[most[0]] + ffn[most[1]])
    scale = max(0.0, times[most] - times[least]) / total if total else 0.0
    return {
        "fixed": times[least],
        "attention": {size: scale * time for size, time in attention.items()},
        "ffn": {size: scale * time for size, time in ffn.items()},
        "layer": max(0.0, times[least] - single) / (layers - 1) if layers > 1 else None,
    }


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
            later = undisturbed_time(second, arrays)
            times.append((undisturbed_time(first, arrays), later))
        else:
            times.append((undisturbed_time(first, arrays), undisturbed_time(second, arrays)))
    return Comparison(statistics.median(own for own, _ in times), statistics.median(b / a for a, b in times))


def undisturbed_time(predictor: Predictor, arrays: Arrays) -> float:
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
