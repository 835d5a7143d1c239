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

from compress.errors import ModelError
from compress.losses import EMBEDDINGS, Part
from compress.models.encoder_parts import family_of, head_size, layers_of

LayerParts = Mapping[int, Collection[Part]]
"""Layer -> the parts to capture."""

Captured = dict[int, dict[str, Tensor]]
"""Layer -> part -> tensor: `hidden` (rows, tokens, width), the others (rows, heads, tokens, head size)."""


@contextmanager
def capture(model: PreTrainedModel, layers: Collection[int], parts: Collection[Part]) -> Iterator[Captured]:
    """Within the block, a forward pass of ``model`` stores these parts of these layers in the yielded dict."""
    with capture_parts(model, dict.fromkeys(layers, parts)) as seen:
        yield seen


@contextmanager
def capture_parts(model: PreTrainedModel, wanted: LayerParts) -> Iterator[Captured]:
    """Like `capture`, with different parts for each layer; layers without parts get no hook."""
    _check(model, wanted)
    seen: Captured = {layer: {} for layer in wanted}
    with ExitStack() as hooks:
        for module, depths in _modules(model, wanted):
            for name in sorted({name for depth in depths for name in wanted.get(depth, ())}):
                module_part = module.get_submodule(family_of(model).part_path(name))
                size = None if name == "hidden" else head_size(model)
                stored = {depth for depth in depths if name in wanted.get(depth, ())}
                hooks.callback(module_part.register_forward_hook(_output_hook(seen, depths, stored, name, size)).remove)
        if wanted.get(EMBEDDINGS):
            first = layers_of(model)[0]
            hooks.callback(first.register_forward_pre_hook(_input_hook(seen, _depths(model, first))).remove)
        yield seen


def _check(model: PreTrainedModel, wanted: LayerParts) -> None:
    depth = len(layers_of(model))
    outside = [index for index in wanted if not EMBEDDINGS <= index < depth]
    if outside:
        raise ModelError(f"layer {outside[0]} cannot be captured: the model has layers 0 to {depth - 1}.")
    if set(wanted.get(EMBEDDINGS, ())) - {"hidden"}:
        raise ModelError("embeddings have no queries, keys or values; only their hidden state can be captured.")


def _modules(model: PreTrainedModel, wanted: LayerParts) -> list[tuple[nn.Module, list[int]]]:
    """Return the distinct modules of the wanted layers, each with all depths at which it is called."""
    layers = layers_of(model)
    distinct = {id(layers[index]): layers[index] for index in wanted if index != EMBEDDINGS}
    return [(module, _depths(model, module)) for module in distinct.values()]


def _depths(model: PreTrainedModel, module: nn.Module) -> list[int]:
    return [depth for depth, layer in enumerate(layers_of(model)) if layer is module]


def _output_hook(
    seen: Captured, depths: Sequence[int], stored: Collection[int], name: str, head: int | None
) -> Callable[[nn.Module, Any, Any], None]:
    """Return a hook that stores one part; a shared layer is called once for each depth, in order."""
    calls = itertools.cycle(depths)

    def store(module: nn.Module, inputs: Any, output: Any) -> None:
        depth = next(calls)
        if depth not in stored:
            return
        tensor: Tensor = output if isinstance(output, Tensor) else output[0]
        seen[depth][name] = tensor if head is None else tensor.view(*tensor.shape[:-1], -1, head).transpose(1, 2)

    return store


def _input_hook(seen: Captured, depths: Sequence[int]) -> Callable[[nn.Module, Any], None]:
    """Return a hook that stores the input of the first layer."""
    calls = itertools.cycle(depths)

    def store(module: nn.Module, inputs: Any) -> None:
        if next(calls) == 0:
            seen[EMBEDDINGS]["hidden"] = inputs[0]

    return store
