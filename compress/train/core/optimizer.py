"""The optimizer: frozen parts, layer-wise learning rate decay, no weight decay for biases and norms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.models.encoder_parts import base_of, family_of, layers_of
from compress.recipe.training_schema import Training
from compress.train.fast_paths.sparse_embeddings import SparseEmbeddings


def make_optimizer(
    model: PreTrainedModel, extra: Sequence[nn.Module], settings: Training, embeddings: SparseEmbeddings | None = None
) -> torch.optim.AdamW:
    """Return AdamW with groups of equal learning rate and decay; `full_rate` of a group is its peak learning rate.

    With ``embeddings`` their trained rows replace the embedding table.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    depths = _depths(model)
    # By name and not by id: names come in the same order in every process, and so do the optimizer's states.
    named = [(depths[name], parameter) for name, parameter in model.named_parameters()]
    named += [(max(depths.values()), parameter) for module in extra for parameter in module.parameters()]
    top = max(depths.values())
    for depth, parameter in named:
        if parameter.requires_grad:
            rate = settings.learning_rate * settings.layer_decay ** (top - depth)
            decay = settings.weight_decay if parameter.ndim > 1 else 0.0
            trained = embeddings.trained if embeddings and parameter is embeddings.table.weight else parameter
            groups.setdefault((rate, decay), []).append(trained)
    if not groups:
        raise ModelError(f"all weights of the model are frozen (freeze: {settings.freeze}).", hint="freeze less")
    options: list[dict[str, Any]] = [
        {"params": parameters, "lr": rate, "full_rate": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
    return torch.optim.AdamW(options, lr=settings.learning_rate, fused=True)


def _depths(model: PreTrainedModel) -> dict[str, int]:
    """Return each parameter's depth: 0 for embeddings, then layers, then the head; shared layers count once."""
    base = base_of(model)
    layers = list(dict.fromkeys(layers_of(model)))
    depths = {id(parameter): len(layers) + 1 for parameter in model.parameters()}
    depths |= {id(parameter): 0 for parameter in base.get_submodule("embeddings").parameters()}
    for depth, layer in enumerate(layers, start=1):
        depths |= {id(parameter): depth for parameter in layer.parameters()}
    return {name: depths[id(parameter)] for name, parameter in model.named_parameters()}


@contextmanager
def frozen(model: PreTrainedModel, freeze: int | str | None) -> Iterator[None]:
    """Freeze the embeddings and the given number of lowest layers within the block."""
    parameters = [] if freeze is None else _frozen_parameters(model, 0 if isinstance(freeze, str) else freeze)
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def _frozen_parameters(model: PreTrainedModel, count: int) -> list[nn.Parameter]:
    layers, family = layers_of(model), family_of(model)
    if count and family.shared_layers:
        raise ModelError(f"freeze: {count} is not possible: the layers of {family.name} share their weights.")
    if count > len(layers):
        raise ModelError(f"freeze: {count} exceeds the model's number of layers ({len(layers)}).")
    modules = [base_of(model).get_submodule("embeddings"), *layers[:count]]
    return [parameter for module in modules for parameter in module.parameters()]
