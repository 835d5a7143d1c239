"""Looking into a model while it runs: layer outputs, Q, K and V at chosen layers, by forward hooks.

Fast attention (sdpa) returns no attention maps, and asking for all hidden states keeps them all alive. Hooks on the
layers' own linear parts work under every attention implementation, keep gradients, and hold what was asked for alone.
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
"""Layer -> the parts that are asked of it."""

Captured = dict[int, dict[str, Tensor]]
"""Layer -> part -> tensor: `hidden` (rows, tokens, width), the others (rows, heads, tokens, head size)."""


@contextmanager
def capture(model: PreTrainedModel, layers: Collection[int], parts: Collection[Part]) -> Iterator[Captured]:
    """Within the block, a forward pass of ``model`` leaves the asked parts of the asked layers in what is yielded."""
    with capture_parts(model, dict.fromkeys(layers, parts)) as seen:
        yield seen


@contextmanager
def capture_parts(model: PreTrainedModel, wanted: LayerParts) -> Iterator[Captured]:
    """As `capture`, with parts of its own for each layer; nothing is hooked where nothing is asked."""
    _check(model, wanted)
    seen: Captured = {layer: {} for layer in wanted}
    with ExitStack() as hooks:
        for module, depths in _modules(model, wanted):
            for name in sorted({name for depth in depths for name in wanted.get(depth, ())}):
                at = module.get_submodule(family_of(model).part_path(name))
                size = None if name == "hidden" else head_size(model)
                kept = {depth for depth in depths if name in wanted.get(depth, ())}
                hooks.callback(at.register_forward_hook(_keeper(seen, depths, kept, name, size)).remove)
        if wanted.get(EMBEDDINGS):
            first = layers_of(model)[0]
            hooks.callback(first.register_forward_pre_hook(_handed(seen, _depths(model, first))).remove)
        yield seen


def _check(model: PreTrainedModel, wanted: LayerParts) -> None:
    depth = len(layers_of(model))
    outside = [index for index in wanted if not EMBEDDINGS <= index < depth]
    if outside:
        raise ModelError(f"layer {outside[0]} cannot be observed: the model has layers 0 to {depth - 1}.")
    if set(wanted.get(EMBEDDINGS, ())) - {"hidden"}:
        raise ModelError("embeddings have no queries, keys or values; only what they hand on can be observed.")


def _modules(model: PreTrainedModel, wanted: LayerParts) -> list[tuple[nn.Module, list[int]]]:
    """The distinct modules behind the wanted layers, each with all depths at which it is called."""
    layers = layers_of(model)
    distinct = {id(layers[index]): layers[index] for index in wanted if index != EMBEDDINGS}
    return [(module, _depths(model, module)) for module in distinct.values()]


def _depths(model: PreTrainedModel, module: nn.Module) -> list[int]:
    return [at for at, layer in enumerate(layers_of(model)) if layer is module]


def _keeper(
    seen: Captured, depths: Sequence[int], kept: Collection[int], name: str, head: int | None
) -> Callable[[nn.Module, Any, Any], None]:
    """A hook that keeps one part; a shared layer is called once for each depth, in order."""
    calls = itertools.cycle(depths)

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        depth = next(calls)
        if depth not in kept:
            return
        tensor: Tensor = output if isinstance(output, Tensor) else output[0]
        seen[depth][name] = tensor if head is None else tensor.view(*tensor.shape[:-1], -1, head).transpose(1, 2)

    return keep


def _handed(seen: Captured, depths: Sequence[int]) -> Callable[[nn.Module, Any], None]:
    """A hook that keeps what the first layer is handed."""
    calls = itertools.cycle(depths)

    def keep(module: nn.Module, inputs: Any) -> None:
        if next(calls) == 0:
            seen[EMBEDDINGS]["hidden"] = inputs[0]

    return keep
