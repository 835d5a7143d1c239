"""Fits the output weights of what stays to the outputs of the unpruned layers: least squares, without training.

The last part of Kwon et al., "A Fast Post-Training Pruning Framework for Transformers", 2022 (arXiv:2204.09656), where
one factor for each unit is fitted; here it is every weight, as in He et al., "Channel Pruning for Accelerating Very
Deep Neural Networks", 2017 (arXiv:1707.06168).
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.models.encoder_parts import family_of, head_channels, head_size, layers_of, part
from compress.train.objective import Batch, forward

DAMPING = 0.01
"""How strongly the fit is drawn to the weights before it, as a share of the inputs' mean square."""
MAX_TOKENS = 50_000
"""No further batches are read from this many tokens on."""


class OutputFit:
    """The normal equations of one output part: its kept inputs, and a one for the bias, should give its outputs."""

    def __init__(self, module: nn.Linear, kept: Sequence[int]) -> None:
        """``kept``: the indices of the part's inputs that stay."""
        self.kept = torch.tensor(kept, device=module.weight.device)
        weight = torch.cat([module.weight.detach()[:, self.kept], module.bias.detach()[:, None]], dim=1)
        self.weight = weight.double()
        self.squares = self.weight.new_zeros(len(kept) + 1, len(kept) + 1)
        self.products = self.weight.new_zeros(len(kept) + 1, len(self.weight))

    def add(self, tokens: Tensor, module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        """Add a batch (a forward hook); ``tokens`` (examples, tokens) is true for tokens that are not padding."""
        features = inputs[0][tokens][:, self.kept]
        features = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
        self.squares += features.T @ features
        self.products += features.T @ output[tokens]

    def solve(self) -> tuple[Tensor, Tensor]:
        """Return the weight (hidden, kept inputs) and the bias (hidden,)."""
        damping = DAMPING * self.squares.diagonal()[:-1].mean() * torch.eye(len(self.squares)).to(self.squares)
        damping[-1, -1] = 0  # of the bias
        fitted = torch.linalg.solve(self.squares + damping, self.products + damping @ self.weight.T).T
        return fitted[:, :-1], fitted[:, -1]


def fit_output_weights(
    pruned: PreTrainedModel,
    model: PreTrainedModel,
    heads: Sequence[Sequence[int]],
    ffn: Sequence[Sequence[int]],
    batches: Sequence[Batch],
) -> None:
    """Set the output weights of ``pruned`` so that from what stays they give the outputs of ``model``'s layers.

    Args:
        pruned: ``model`` after surgery; changed in place.
        model: before surgery, which runs on the batches.
        heads: the indices in ``model`` of the heads that stay, by layer; none of a layer that was dropped.
        ffn: likewise of the FFN neurons.
        batches: of rows of train.
    """
    family, size = family_of(model), head_size(model)
    kept = {family.attention_output: [head_channels(layer, size) for layer in heads], family.ffn_out: ffn}
    depths = [depth for depth, layer in enumerate(heads) if layer]
    parts = {(depth, path): part(layers_of(model)[depth], path) for depth in depths for path in kept}
    fits = {(depth, path): OutputFit(module, kept[path][depth]) for (depth, path), module in parts.items()}
    training, seen = model.training, 0
    model.train(False)
    for batch in batches:
        tokens = batch["attention_mask"].bool()
        with torch.no_grad(), ExitStack() as hooks:
            for key, module in parts.items():
                hooks.callback(module.register_forward_hook(partial(fits[key].add, tokens)).remove)
            forward(model, batch)
        seen += int(tokens.sum())
        if seen >= MAX_TOKENS:
            break
    model.train(training)
    for depth, layer in zip(depths, layers_of(pruned), strict=True):
        for path in kept:
            weight, bias = fits[depth, path].solve()
            part(layer, path).weight.data.copy_(weight)
            part(layer, path).bias.data.copy_(bias)
