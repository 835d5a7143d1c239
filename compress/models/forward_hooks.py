"""Captures hidden states, queries, keys and values at chosen layers during a forward pass, by forward hooks.

Fast attention (sdpa) returns no attention maps, and `output_hidden_states` keeps the states of all layers in memory.
Hooks on the layers' linear parts work with every attention implementation, keep gradients, and store only the requested
tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.losses import EMBEDDINGS, LayerPart
from compress.models.encoder_parts import family_of, head_size, layers_of

LayerParts = Mapping[int, Collection[LayerPart]]
"""Layer -> the parts to capture."""

Captured = dict[int, dict[str, Tensor]]
"""Layer -> part -> tensor: `hidden` (rows, tokens, width), the others (rows, heads, tokens, head size)."""


@contextmanager
def capture_parts(model: PreTrainedModel, wanted: LayerParts) -> Iterator[Captured]:
    """Within the block, a forward pass of ``model`` stores these parts of these layers in the yielded dict."""
    family, layers = family_of(model), layers_of(model)
    seen: Captured = {layer: {} for layer in wanted}
    with ExitStack() as hooks:
        for index, names in wanted.items():
            layer = layers[max(index, 0)]
            depths = [depth for depth, other in enumerate(layers) if other is layer]
            for name in names:
                if index == EMBEDDINGS:
                    handle = layer.register_forward_pre_hook(_storing_hook(seen[index], name, depths, 0))
                else:
                    head = None if name == "hidden" else head_size(model)
                    hook = _storing_hook(seen[index], name, depths, index, head)
                    handle = layer.get_submodule(family.part_path(name)).register_forward_hook(hook)
                hooks.callback(handle.remove)
        yield seen


def _storing_hook(
    seen: dict[str, Tensor], name: str, depths: Sequence[int], wanted: int, head: int | None = None
) -> Callable[..., None]:
    """Return a hook that stores the tensor it gets last, at one depth.

    A shared layer is called once for each of its ``depths``, in order.
    """
    calls = itertools.cycle(depths)

    def store(module: nn.Module, *values: Any) -> None:
        if next(calls) == wanted:
            tensor: Tensor = values[-1] if isinstance(values[-1], Tensor) else values[-1][0]
            seen[name] = tensor if head is None else tensor.view(*tensor.shape[:-1], -1, head).transpose(1, 2)

    return store
