"""Removes heads and FFN neurons from a model with torch-pruning.

torch-pruning traces which modules depend on each other. Heads and neurons are named here, always complete heads: by
default it would cut within heads, and the module would go on computing with another number of them, without an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch_pruning
from torch import nn
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.models.encoder_parts import base_of, family_of, head_channels, head_size, layers_of, part
from compress.models.nonuniform_models import match_config_to_weights, set_head_count

ATTENTION, FFN = ("query", "key", "value", "attention_output"), ("ffn_in", "ffn_out")
"""Parts of a layer that lose the same channels, the one from which they are traced first."""


def remove_units(
    model: PreTrainedModel, heads: Sequence[Sequence[int]], ffn: Sequence[Sequence[int]]
) -> PreTrainedModel:
    """Return the model with only these heads and FFN neurons in each layer; ``model`` itself is consumed.

    The result may be of another class: one whose config describes non-uniform layers.

    Args:
        model: of a prunable family.
        heads: the indices to keep, a list for each layer; none where the layer is dropped.
        ffn: likewise for FFN neurons.
    """
    family, size = family_of(model), head_size(model)
    remaining = [units for units in zip(heads, ffn, strict=True) if all(units)]
    _drop_layers(model, [index for index, units in enumerate(zip(heads, ffn, strict=True)) if not all(units)])
    graph = _dependency_graph(model)
    for layer, (kept_heads, kept_neurons) in zip(layers_of(model), remaining, strict=True):
        for names, kept in ((ATTENTION, head_channels(kept_heads, size)), (FFN, kept_neurons)):
            _keep_channels(graph, [part(layer, getattr(family, name)) for name in names], kept)
        set_head_count(layer, family, len(kept_heads), size)
    return match_config_to_weights(model)


def _drop_layers(model: PreTrainedModel, indices: Sequence[int]) -> None:
    """Remove whole layers; the config still has the earlier number of them."""
    stack = base_of(model).get_submodule(family_of(model).layers)
    assert isinstance(stack, nn.ModuleList)
    for index in sorted(indices, reverse=True):
        del stack[index]


def _dependency_graph(model: PreTrainedModel) -> Any:
    """Return torch-pruning's dependency graph, traced in eager attention, whose operations it knows."""
    attention, training = model.config._attn_implementation, model.training
    example = {name: torch.ones(1, 4, dtype=torch.long, device=model.device) for name in family_of(model).inputs}
    model.set_attn_implementation("eager")
    model.train(False)
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about parameters outside of modules, which are not changed
        graph = torch_pruning.DependencyGraph().build_dependency(model, example_inputs=example)
    model.set_attn_implementation(attention)
    model.train(training)
    return graph


def _keep_channels(graph: Any, parts: Sequence[nn.Linear], kept: Sequence[int]) -> None:
    """Keep these output channels of the first part, and the matching channels of the others."""
    removed = sorted(set(range(parts[0].out_features)) - set(kept))
    if not removed:
        return
    group = graph.get_pruning_group(parts[0], torch_pruning.prune_linear_out_channels, idxs=removed)
    # The tracer must agree with the table of families: a part that it missed would be cut wrongly, and one that it
    # added unexpectedly too.
    members = {id(member.dep.target.module): list(member.idxs) for member in group if _has_weights(member)}
    if members != {id(module): removed for module in parts}:
        raise ModelError("the parts of a layer depend on others than the table of families states: nothing is removed.")
    group.prune()


def _has_weights(member: Any) -> bool:
    return any(True for _ in member.dep.target.module.parameters())
