"""Measures a latency table: models with random weights, all layers alike, timed against the one with the most."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx
import torch
from transformers import AutoConfig

from compress.console import Console
from compress.environment import describe_cpu
from compress.export.builders.onnx import export_onnx_from_model
from compress.export.tune_ort_session import fastest_options
from compress.families import family_named
from compress.model_info import ShapeInfo
from compress.models.heads import HEADS
from compress.models.nonuniform_models import from_config, reshape_config
from compress.prune.latency_table import LatencyTable
from compress.prune.resized_graph import resize_graph, unique_sizes
from compress.prune.time_predictors import compare_times, open_variant, random_inputs
from compress.runtime.predictor import Placement

Sizes = tuple[int, int]
"""The number of heads and the FFN width of every layer."""

VOCABULARY = 1000
"""Word pieces of the timed models: looking vectors up takes as long in any vocabulary."""
SPARE_POSITIONS = 8
"""Rows of the position table beyond the length: some families skip the first ones."""
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
    most, size = (max(shape.heads), max(shape.ffn)), shape.head_size or shape.hidden // max(shape.heads)
    others = [shape.hidden, shape.embedding_size or 0, VOCABULARY, length, length + SPARE_POSITIONS]
    exported = unique_sizes(*most, size, others)
    proto = _export_random_model(shape, exported, size, length, shape.layers)
    arrays, whole = random_inputs(batch, length, VOCABULARY), resize_graph(proto, exported, most, size)
    options, _ = fastest_options(lambda each: partial(open_variant(whole, variant, placement, each).predict, arrays))
    reference = open_variant(whole, variant, placement, options)
    grid = _grid(most, round_to)
    least = min(grid, default=most)
    timed = [(shape.layers, sizes) for sizes in grid] + [(1, least)] * (shape.layers > 1)
    ratios: dict[tuple[int, Sizes], float] = {(shape.layers, most): 1.0}
    milliseconds = []
    with (console or Console("quiet")).progress(len(timed), "latency", "models") as progress:
        for layers, sizes in timed:
            if layers < shape.layers:
                proto = _export_random_model(shape, exported, size, length, layers)
            other = open_variant(resize_graph(proto, exported, sizes, size), variant, placement, options)
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
        head_size=size,
        layers=shape.layers,
        session=options,
        **_parts(whole_depth, unit * ratios[1, least], shape.layers),
    )


def _export_random_model(shape: ShapeInfo, sizes: Sizes, head_size: int, length: int, layers: int) -> onnx.ModelProto:
    """Return the graph of an encoder of this hidden size with these sizes in every layer."""
    family, embedding = family_named(shape.family), shape.embedding_size
    config = AutoConfig.for_model(
        family.name,
        vocab_size=VOCABULARY,
        hidden_size=shape.hidden,
        num_hidden_layers=layers,
        num_attention_heads=shape.hidden // head_size,
        max_position_embeddings=length + SPARE_POSITIONS,
        **({"embedding_size": embedding or shape.hidden} if family.own_embedding_size else {}),
    )
    factors = None if family.own_embedding_size else embedding
    config = reshape_config(config, shape.hidden, [sizes] * layers, head_size, factors)
    with torch.random.fork_rng(devices=[]):
        model = from_config(HEADS["encoder"].model_class(type(config)), config)
        for parameter in model.parameters():  # equal tensors (biases of zero) would be stored once
            torch.nn.init.normal_(parameter, std=0.02)
    return export_onnx_from_model(model)


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
