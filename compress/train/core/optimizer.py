"""Which parameters learn, and how fast: frozen parts, rates that fall towards the embeddings, no decay of biases."""

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
    model: PreTrainedModel, extra: Sequence[nn.Module], settings: Training, words: SparseEmbeddings | None = None
) -> torch.optim.AdamW:
    """AdamW in groups of equal rate and decay; every group knows its full rate as `full_rate`.

    With ``words`` those rows learn in place of the table they are of.
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
            learning = words.trained if words and parameter is words.table.weight else parameter
            groups.setdefault((rate, decay), []).append(learning)
    if not groups:
        raise ModelError(f"no weight of the model is left to learn (freeze: {settings.freeze}).", hint="freeze less")
    described: list[dict[str, Any]] = [
        {"params": parameters, "lr": rate, "full_rate": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
    return torch.optim.AdamW(described, lr=settings.learning_rate, fused=True)


def _depths(model: PreTrainedModel) -> dict[str, int]:
    """Each parameter's height over the embeddings (0); the head stands above the last layer. Shared layers are one."""
    base = base_of(model)
    layers = list(dict.fromkeys(layers_of(model)))
    heights = {id(parameter): len(layers) + 1 for parameter in model.parameters()}
    heights |= {id(parameter): 0 for parameter in base.get_submodule("embeddings").parameters()}
    for height, layer in enumerate(layers, start=1):
        heights |= {id(parameter): height for parameter in layer.parameters()}
    return {name: heights[id(parameter)] for name, parameter in model.named_parameters()}


@contextmanager
def frozen(model: PreTrainedModel, freeze: int | str | None) -> Iterator[None]:
    """Within the block the embeddings, and so many lowest layers, keep their weights."""
    parameters = [] if freeze is None else _frozen_parameters(model, 0 if isinstance(freeze, str) else freeze)
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def _frozen_parameters(model: PreTrainedModel, count: int) -> list[nn.Parameter]:
    layers, family = layers_of(model), family_of(model)
    if count and family.shared_layers:
        raise ModelError(f"freeze: {count} is not possible, since the layers of {family.name} share their weights.")
    if count > len(layers):
        raise ModelError(f"freeze: {count} asks for more layers than the model has ({len(layers)}).")
    modules = [base_of(model).get_submodule("embeddings"), *layers[:count]]
    return [parameter for module in modules for parameter in module.parameters()]
