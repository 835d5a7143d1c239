"""Removes heads and FFN neurons from a model with torch-pruning.

torch-pruning traces which modules depend on each other. Heads and neurons are named here, always complete heads: by
default it would cut within heads, and the module would go on computing with another number of them, without an error.
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

ROOTS = MappingProxyType({"heads": "query", "neurons": "ffn_in"})
"""The part of a family from which a group of dependent modules is traced."""
EXPECTED = MappingProxyType({"heads": {"query", "key", "value", "attention_output"}, "neurons": {"ffn_in", "ffn_out"}})
"""The parts that such a group must consist of."""


def remove_units(
    model: PreTrainedModel, heads: Sequence[Sequence[int]], ffn: Sequence[Sequence[int]]
) -> PreTrainedModel:
    """Return the model with only these heads and FFN neurons in each layer; ``model`` itself is consumed.

    The result may be of another class: one whose config describes non-uniform layers.

    Args:
        model: of a prunable family.
        heads: the indices to keep, a list for each layer, at least one each.
        ffn: likewise for FFN neurons.
    """
    family, size = family_of(model), head_size(model)
    require_prunable(family)
    _check_indices(model, heads, ffn)
    graph = _dependency_graph(model)
    for layer, kept_heads, kept_neurons in zip(layers_of(model), heads, ffn, strict=True):
        channels = [head * size + offset for head in kept_heads for offset in range(size)]
        _keep_channels(graph, layer, family, "heads", channels)
        _keep_channels(graph, layer, family, "neurons", kept_neurons)
        set_head_count(layer, family, len(kept_heads), size)
    return match_config_to_weights(model)


def _check_indices(model: PreTrainedModel, heads: Sequence[Sequence[int]], ffn: Sequence[Sequence[int]]) -> None:
    shapes = layer_shapes(model)
    if not len(heads) == len(ffn) == len(shapes):
        raise ModelError(f"expected indices for {len(shapes)} layers, got {len(heads)} (heads) and {len(ffn)} (FFN).")
    for index, (shape, chosen) in enumerate(zip(shapes, zip(heads, ffn, strict=True), strict=True)):
        for what, count, kept in zip(("heads", "neurons"), shape, chosen, strict=True):
            if not kept or len(set(kept)) != len(kept) or not all(0 <= unit < count for unit in kept):
                raise ModelError(
                    f"layer {index} has {count} {what}; expected at least one index between 0 and {count - 1} to keep,"
                    " each once."
                )


def _dependency_graph(model: PreTrainedModel) -> Any:
    """Return torch-pruning's dependency graph, traced in eager attention, whose operations it knows."""
    attention = model.config._attn_implementation
    training = model.training
    example = {name: torch.ones(1, 4, dtype=torch.long, device=model.device) for name in family_of(model).inputs}
    model.set_attn_implementation("eager")
    model.train(False)
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about parameters outside of modules, which are not changed
            return torch_pruning.DependencyGraph().build_dependency(model, example_inputs=example)
    finally:
        model.set_attn_implementation(attention)
        model.train(training)


def _keep_channels(graph: Any, layer: nn.Module, family: Family, what: str, kept: Sequence[int]) -> None:
    """Keep these output channels of the group's root, and the matching channels of the other parts."""
    parts = {name: part(layer, getattr(family, name)) for name in EXPECTED[what]}
    root = parts[ROOTS[what]]
    removed = sorted(set(range(root.out_features)) - set(kept))
    if not removed:
        return
    group = graph.get_pruning_group(root, torch_pruning.prune_linear_out_channels, idxs=removed)
    # The tracer must agree with the table of families: a part that it missed would be cut wrongly, and one that it
    # added unexpectedly too.
    members = {id(member.dep.target.module): list(member.idxs) for member in group if _has_weights(member)}
    if members != {id(module): removed for module in parts.values()}:
        raise ModelError(
            f"{family.name}: the {what} of a layer depend on other parts than expected, so nothing is removed."
        )
    group.prune()


def _has_weights(member: Any) -> bool:
    return any(True for _ in member.dep.target.module.parameters())
