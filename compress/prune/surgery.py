"""Removes heads and FFN neurons from a model with torch-pruning, and records what a cut kept of each layer."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch_pruning
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.model_folder.model_history import PrunedLayer, PruningInfo
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


DIGITS = 4
"""Significant digits of the importance in compress.json."""
Units = tuple[Sequence[int], Sequence[float], Sequence[float] | None]
"""The indices that were kept, ascending, their importance, and that of the others."""


def pruned_layer(kept_heads: Sequence[int], heads: Tensor, kept_ffn: Sequence[int], ffn: Tensor) -> PrunedLayer:
    """Return the record of one layer, given the importance of all its units."""
    return _layer(_units(kept_heads, heads), _units(kept_ffn, ffn))


def since_first_cut(earlier: PruningInfo, later: PruningInfo) -> PruningInfo:
    """Return the record of a later cut, its indices those in the model before the earlier one.

    What was removed has the importance that it had in the cut that removed it; what was kept, in the later one. So that
    they compare, those of the later cut are scaled: the units of a layer add up to what they did in the earlier one.
    """
    remaining = iter(later.layers)
    layers = [before if before.is_dropped else _chained_layer(before, next(remaining)) for before in earlier.layers]
    dropped = tuple(number for number, layer in enumerate(earlier.layers) if layer.is_dropped)
    return later.model_copy(update={"layers": tuple(layers), "dropped_before": dropped or None})


def _chained_layer(before: PrunedLayer, after: PrunedLayer) -> PrunedLayer:
    return _layer(_chained(_heads(before), _heads(after)), _chained(_ffn(before), _ffn(after)))


def _chained(before: Units, after: Units) -> Units:
    kept = [before[0][unit] for unit in after[0]]
    if before[2] is None or after[2] is None:
        return kept, after[1], None
    removed = dict(zip(_others(before[0], len(before[0]) + len(before[2])), before[2], strict=True))
    scale = sum(before[1]) / (sum(after[1]) + sum(after[2]) or 1.0)
    kept_importance, removed_importance = ([_rounded(scale * each) for each in part] for part in (after[1], after[2]))
    now_removed = [before[0][unit] for unit in _others(after[0], len(before[0]))]
    removed |= dict(zip(now_removed, removed_importance, strict=True))
    return kept, kept_importance, [removed[unit] for unit in sorted(removed)]


def _units(kept: Sequence[int], importance: Tensor) -> Units:
    rounded = list(map(_rounded, importance.tolist()))
    return kept, [rounded[unit] for unit in kept], [rounded[unit] for unit in _others(kept, len(rounded))]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _others(kept: Sequence[int], total: int) -> list[int]:
    return sorted(set(range(total)) - set(kept))


def _layer(heads: Units, ffn: Units) -> PrunedLayer:
    return PrunedLayer.model_validate(
        {
            "heads": heads[0],
            "ffn": ffn[0],
            "heads_importance": heads[1],
            "ffn_importance": ffn[1],
            "removed_heads_importance": heads[2],
            "removed_ffn_importance": ffn[2],
        }
    )


def _heads(layer: PrunedLayer) -> Units:
    return layer.heads, layer.heads_importance, layer.removed_heads_importance


def _ffn(layer: PrunedLayer) -> Units:
    return layer.ffn, layer.ffn_importance, layer.removed_ffn_importance
