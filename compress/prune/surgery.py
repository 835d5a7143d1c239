"""Cutting heads and FFN neurons out of a model, with torch-pruning.

torch-pruning traces which parts hang together. We name the heads and neurons ourselves, whole heads always: left to its
defaults it cuts within heads, and the module goes on computing with another number of them, without an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch_pruning
from torch import nn
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.families import Family, require_prunable
from compress.models.encoder_parts import family_of, head_size, layer_shapes, layers_of, part
from compress.models.nonuniform_models import match_config_to_weights, set_head_count


def cut(model: PreTrainedModel, heads: Sequence[Sequence[int]], ffn: Sequence[Sequence[int]]) -> PreTrainedModel:
    """The model with only these heads and FFN neurons in each layer.

    The model given is used up. What comes back may be of another class: one whose config tells the uneven shape.

    Args:
        model: of a prunable family.
        heads: the indices that stay, a list for each layer, one at least.
        ffn: likewise for FFN neurons.
    """
    family, size = family_of(model), head_size(model)
    require_prunable(family)
    _check(model, heads, ffn)
    graph = _dependencies(model)
    for layer, kept_heads, kept_neurons in zip(layers_of(model), heads, ffn, strict=True):
        channels = [head * size + offset for head in kept_heads for offset in range(size)]
        _keep(graph, layer, family, "heads", channels)
        _keep(graph, layer, family, "neurons", kept_neurons)
        set_head_count(layer, family, len(kept_heads), size)
    return match_config_to_weights(model)


def _check(model: PreTrainedModel, heads: Sequence[Sequence[int]], ffn: Sequence[Sequence[int]]) -> None:
    shapes = layer_shapes(model)
    if not len(heads) == len(ffn) == len(shapes):
        raise ModelError(f"expected choices for {len(shapes)} layers; got {len(heads)} (heads) and {len(ffn)} (FFN).")
    for index, (shape, chosen) in enumerate(zip(shapes, zip(heads, ffn, strict=True), strict=True)):
        for what, count, kept in zip(("heads", "neurons"), shape, chosen, strict=True):
            if not kept or len(set(kept)) != len(kept) or not all(0 <= each < count for each in kept):
                raise ModelError(f"layer {index} has {count} {what}; what stays should be some of them, each once.")


def _dependencies(model: PreTrainedModel) -> Any:
    """torch-pruning's graph of what hangs together; traced in eager attention, whose operations it knows."""
    attention = model.config._attn_implementation
    training = model.training
    example = {name: torch.ones(1, 4, dtype=torch.long, device=model.device) for name in family_of(model).inputs}
    model.set_attn_implementation("eager")
    model.train(False)
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about parameters that are no module's, which we do not touch
            return torch_pruning.DependencyGraph().build_dependency(model, example_inputs=example)
    finally:
        model.set_attn_implementation(attention)
        model.train(training)


ROOTS = MappingProxyType({"heads": "query", "neurons": "ffn_in"})
"""From which part of a family the group of what goes together is found."""
EXPECTED = MappingProxyType({"heads": {"query", "key", "value", "attention_output"}, "neurons": {"ffn_in", "ffn_out"}})
"""The parts that such a group must have, and no other."""


def _keep(graph: Any, layer: nn.Module, family: Family, what: str, kept: Sequence[int]) -> None:
    """Keep these output channels of the group's root, and the channels of other parts that go with them."""
    parts = {name: part(layer, getattr(family, name)) for name in EXPECTED[what]}
    root = parts[ROOTS[what]]
    gone = sorted(set(range(root.out_features)) - set(kept))
    if not gone:
        return
    group = graph.get_pruning_group(root, torch_pruning.prune_linear_out_channels, idxs=gone)
    # The tracer must agree with the table of families: what it missed would be cut wrong, and what it adds by surprise.
    members = {id(member.dep.target.module): list(member.idxs) for member in group if _has_weights(member)}
    if members != {id(module): gone for module in parts.values()}:
        raise ModelError(
            f"{family.name}: the {what} of a layer hang together with other parts than known; nothing is cut."
        )
    group.prune()


def _has_weights(member: Any) -> bool:
    return any(True for _ in member.dep.target.module.parameters())
