"""Slices a narrower model out of a wide one: it keeps the most important hidden dimensions, heads and FFN neurons.

Muralidharan et al., "Compact Language Models via Pruning and Knowledge Distillation" (Minitron), 2024
(arXiv:2407.14679). The hidden dimensions are one set for the whole model, because all layers add to the same vectors;
heads and neurons are selected in each layer. Their order is preserved.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.families import Family
from compress.models.embedding_model import SentenceEmbedding
from compress.models.encoder_parts import base_of, family_of, head_size, layer_shapes, layers_of, part, word_embeddings
from compress.models.student.factorised_embeddings import (
    FactoredEmbedding,
    embedding_table,
    factor_count,
    set_table,
)

Narrow = Callable[[Tensor, int], Tensor]
"""Narrows a tensor in one of its dimensions."""
Axes = tuple[Narrow, Narrow]
"""How the rows and columns of a module's weight are narrowed; its bias is narrowed as the rows."""


@dataclass(frozen=True)
class Importance:
    """Importance of each part of a model, as measured on data by `activation_importance`: means over tokens.

    Only ranks and ratios matter. All tensors are on the CPU, wherever the model is.
    """

    hidden: Tensor
    """Of each hidden dimension (hidden,)."""
    heads: Sequence[Tensor]
    """By layer (heads,)."""
    neurons: Sequence[Tensor]
    """By layer (FFN width,)."""
    moments: Tensor
    """Mean products of two hidden dimensions (hidden, hidden); its principal directions are those of `svd`."""


def weight_importance(model: PreTrainedModel) -> Importance:
    """Return importance from weights alone, for use without data.

    A hidden dimension counts by the gain and bias of the layer norms, a head or neuron by the norm of its output
    weights. The products of dimensions are estimated from the weights that write to them.
    """
    family, shapes, layers = family_of(model), layer_shapes(model), layers_of(model)
    outputs = [part(layer, family.attention_output).weight.detach().cpu() for layer in layers]
    downs = [part(layer, family.ffn_out).weight.detach().cpu() for layer in layers]
    modules = [module for layer in layers for module in layer.modules()]
    norms = [dict(module.named_parameters()) for module in modules if isinstance(module, nn.LayerNorm)]
    gains = torch.stack([norm["weight"].detach().cpu() for norm in norms])
    shifts = [norm["bias"].detach().cpu() for norm in norms if "bias" in norm]
    biases = torch.stack(shifts or [torch.zeros_like(gains[0])])
    written = torch.stack([weight @ weight.T for weight in (*outputs, *downs)]).sum(dim=0)
    sizes = written.diagonal().sqrt().clamp(min=torch.finfo(written.dtype).tiny)
    heads = [weight.reshape(len(weight), count, -1) for weight, (count, _) in zip(outputs, shapes, strict=True)]
    return Importance(
        hidden=(gains.square() + biases.square()).sqrt().mean(dim=0),
        heads=[weight.square().sum(dim=(0, 2)).sqrt() for weight in heads],
        neurons=[weight.norm(dim=0) for weight in downs],
        moments=(gains.T @ gains * (written / sizes / sizes[:, None]) + biases.T @ biases) / len(norms),
    )


def uniform_importance(model: PreTrainedModel) -> Importance:
    """Return equal importance for all parts, for students that keep everything."""
    hidden = int(model.config.hidden_size)
    heads, neurons = zip(*layer_shapes(model), strict=True)
    return Importance(torch.ones(hidden), [*map(torch.ones, heads)], [*map(torch.ones, neurons)], torch.eye(hidden))


@dataclass(frozen=True)
class HiddenMap:
    """Maps the teacher's hidden dimensions to the student's."""

    hidden: int
    """The teacher's hidden size."""
    kept: Tensor
    """Indices of the kept dimensions, in order (width,)."""
    gain: float
    """Factor by which layer norm outputs would become too small without correction.

    A norm scales the kept dimensions to variance one, although they had more than their share of the variance before:
    hidden / width times their share, which is the square of the gain.
    """
    basis: Tensor | None = None
    """Directions (hidden, width) used in place of single dimensions."""

    @property
    def matrix(self) -> Tensor:
        """The map as a matrix (hidden, width)."""
        return torch.eye(self.hidden)[:, self.kept] if self.basis is None else self.basis

    def states(self, tensor: Tensor, dim: int) -> Tensor:
        """Narrow a weight that reads or writes hidden states."""
        if self.basis is None:
            return take(self.kept, self.hidden, tensor, dim)
        narrowed: Tensor = torch.tensordot(tensor, self.basis.to(tensor), dims=([dim], [0]))
        return narrowed.movedim(-1, dim)

    def norm(self, tensor: Tensor, dim: int) -> Tensor:
        """Narrow the weight of a layer norm, which works on single dimensions."""
        return take(self.kept, self.hidden, tensor, dim) * self.gain


def take(kept: Tensor, count: int, tensor: Tensor, dim: int) -> Tensor:
    """Return the ``kept`` of ``count`` entries; of each block where several are concatenated (Q, K and V)."""
    blocks = range(0, tensor.shape[dim], count)
    return tensor.index_select(dim, torch.cat([kept + start for start in blocks]).to(tensor.device))


def top_indices(importance: Tensor, count: int) -> Tensor:
    """Return the indices of the ``count`` largest values, in ascending order of index."""
    return torch.sort(torch.sort(importance, descending=True, stable=True).indices[:count]).values


def select_dimensions(importance: Importance, width: int) -> HiddenMap:
    """Return the map to the ``width`` most important hidden dimensions."""
    kept = top_indices(importance.hidden, width)
    return HiddenMap(
        len(importance.hidden), kept, norm_gain(importance.moments, torch.eye(len(importance.hidden))[:, kept])
    )


def norm_gain(moments: Tensor, basis: Tensor) -> float:
    """Return `HiddenMap.gain` for ``basis`` (hidden, width), which has orthonormal columns."""
    hidden, width = basis.shape
    share = float((basis.T @ moments @ basis).trace() / moments.trace())
    return math.sqrt(share * hidden / width)


def copy_weights(
    origin: PreTrainedModel,
    fresh: PreTrainedModel,
    chosen: Sequence[int],
    importance: Importance,
    stream: HiddenMap,
    counts: Tensor | None = None,
) -> None:
    """Copy the weights of ``origin`` to ``fresh``: everything outside the layers, and the chosen layers in order.

    Every parameter is narrowed to the shape it has in ``fresh``. ``counts`` of pieces weight the errors of factorised
    word vectors.
    """
    done = {module for layer in layers_of(fresh) for module in layer.modules()}
    done.update(_set_vectors(origin, fresh, stream, counts))
    axes = _head_axes(origin, fresh, stream)
    for path, module in fresh.named_modules():
        if module not in done:
            _copy_own(origin.get_submodule(path), module, axes.get(path), stream)
    family, size, theirs = family_of(origin), head_size(origin), layers_of(origin)
    for layer, index in zip(layers_of(fresh), chosen, strict=True):
        axes = _layer_axes(family, size, layer, importance.heads[index], importance.neurons[index], stream)
        for path, module in layer.named_modules():
            _copy_own(theirs[index].get_submodule(path), module, axes.get(path), stream)


def _layer_axes(
    family: Family, size: int, layer: nn.Module, heads: Tensor, neurons: Tensor, stream: HiddenMap
) -> dict[str, Axes]:
    """Return by path how the teacher's linear parts are narrowed to the shape of ``layer``."""
    width, ffn = part(layer, family.attention_output).in_features, part(layer, family.ffn_out).in_features
    channels = torch.arange(len(heads) * size).reshape(len(heads), size)
    head = partial(take, channels[top_indices(heads, width // size)].flatten(), channels.numel())
    neuron = partial(take, top_indices(neurons, ffn), len(neurons))
    readers = (family.query, family.key, family.value, family.query_key_value)
    return {path: (head, stream.states) for path in readers if path is not None} | {
        family.attention_output: (stream.states, head),
        family.ffn_in: (neuron, stream.states),
        family.ffn_out: (stream.states, neuron),
    }


def _copy_own(theirs: nn.Module, ours: nn.Module, axes: Axes | None, stream: HiddenMap) -> None:
    """Copy a module's own parameters, narrowed in each dimension in which the target is smaller.

    Without ``axes``, the module's inputs and outputs are hidden states.
    """
    rows, columns = axes or (stream.states, stream.states)
    given = dict(theirs.named_parameters(recurse=False))
    for name, target in ours.named_parameters(recurse=False):
        if name not in given:
            # A ModernBERT's first layer has no norm before its attention.
            raise ModelError(
                "the teacher's first layer lacks a norm that all others have, so it can only be the student's first.",
                hint="list the student's layers in the teacher's order",
            )
        value = given[name].detach()
        is_gain = axes is None and isinstance(ours, nn.LayerNorm) and name == "weight"
        for dim, narrow in zip(range(value.ndim), (stream.norm if is_gain else rows, columns), strict=False):
            if value.shape[dim] != target.shape[dim]:
                value = narrow(value, dim)
        with torch.no_grad():
            target.copy_(value)


def _set_vectors(
    origin: PreTrainedModel, fresh: PreTrainedModel, stream: HiddenMap, counts: Tensor | None
) -> list[nn.Module]:
    """Set factorised word vectors from the teacher's table where its own differ; return the modules that were set."""
    ours = word_embeddings(fresh)
    if not isinstance(ours, FactoredEmbedding) or factor_count(origin) == ours.embedding_dim:
        return []
    table = embedding_table(word_embeddings(origin))
    set_table(ours, table if table.shape[1] == ours.widen.out_features else stream.states(table, 1), counts)
    return list(ours.modules())


def _head_axes(origin: PreTrainedModel, fresh: PreTrainedModel, stream: HiddenMap) -> dict[str, Axes]:
    """Return how a head with a dense layer of its own is narrowed.

    The outputs of that layer are features, not hidden states: those with the largest weights in the last layer are
    kept, independently of the kept hidden dimensions.
    """
    known = {module for outer in (*layers_of(fresh), word_embeddings(fresh)) for module in outer.modules()}
    linears = {
        path: (part(origin, path).weight.detach(), module.weight.shape)
        for path, module in fresh.named_modules()
        if isinstance(module, nn.Linear) and module not in known
    }
    narrowed = {path: [old.shape[dim] != new[dim] for dim in (0, 1)] for path, (old, new) in linears.items()}
    dense = [path for path, both in narrowed.items() if both == [True, True]]
    readers = [path for path, both in narrowed.items() if both == [False, True]]
    if not dense or not readers or isinstance(origin, SentenceEmbedding):
        return {}
    weights = torch.cat([linears[path][0].cpu() for path in readers])
    features = partial(take, top_indices(weights.norm(dim=0), linears[dense[0]][1][0]), weights.shape[1])
    encoder = set(base_of(origin).modules())
    norms = [
        path for path, module in origin.named_modules() if isinstance(module, nn.LayerNorm) and module not in encoder
    ]
    return (
        dict.fromkeys(norms, (features, features))
        | dict.fromkeys(dense, (features, stream.states))
        | dict.fromkeys(readers, (stream.states, features))
    )
