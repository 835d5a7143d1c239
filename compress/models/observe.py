"""Looking into a model while it runs: layer outputs, Q, K and V at chosen layers, by forward hooks.

Fast attention (sdpa) returns no attention maps, and asking for all hidden states keeps them all alive. Hooks on the
layers' own linear parts work under every attention implementation, keep gradients, and hold what was asked for alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.losses import Part
from compress.models.families import FAMILIES, Family, family_of, head_size, layers_of

Seen = dict[int, dict[str, Tensor]]
"""Layer -> part -> tensor: `hidden` (rows, tokens, width), the others (rows, heads, tokens, head size)."""


@contextmanager
def observe(model: PreTrainedModel, layers: Collection[int], parts: Collection[Part]) -> Iterator[Seen]:
    """Within the block, a forward pass of ``model`` leaves the asked parts of the asked layers in what is yielded."""
    seen: Seen = {layer: {} for layer in layers}
    paths = {name: part_path(family_of(model), name) for name in parts}
    size = head_size(model)
    with ExitStack() as hooks:
        for module, depths in _modules(model, seen):
            for name, path in paths.items():
                shape = None if name == "hidden" else size
                hook = module.get_submodule(path).register_forward_hook(_keeper(seen, depths, name, shape))
                hooks.callback(hook.remove)
        yield seen


def part_path(family: Family, name: Part) -> str:
    """Where a part comes out, relative to its layer (the layer itself gives the hidden state)."""
    path = {"hidden": "", "query": family.query, "key": family.key, "value": family.value}[name]
    if path is None:
        able = ", ".join(known for known, entry in FAMILIES.items() if entry.query is not None)
        raise ModelError(
            f"{family.name} computes {name} together with others, so it cannot be observed (possible in: {able}).",
            hint="leave the attention loss out",
        )
    return path


def _modules(model: PreTrainedModel, wanted: Collection[int]) -> list[tuple[nn.Module, list[int]]]:
    """The distinct modules behind the wanted layers, each with all depths at which it is called."""
    layers = layers_of(model)
    outside = [index for index in wanted if not 0 <= index < len(layers)]
    if outside:
        raise ModelError(f"layer {outside[0]} cannot be observed: the model has layers 0 to {len(layers) - 1}.")
    distinct = {id(layers[index]): layers[index] for index in wanted}
    return [(module, [at for at, layer in enumerate(layers) if layer is module]) for module in distinct.values()]


def _keeper(seen: Seen, depths: list[int], name: str, head: int | None) -> Callable[[nn.Module, Any, Any], None]:
    """A hook that keeps one part; a shared layer is called once for each depth, in order."""
    calls = itertools.cycle(depths)

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        depth = next(calls)
        if depth not in seen:
            return
        tensor: Tensor = output if isinstance(output, Tensor) else output[0]
        seen[depth][name] = tensor if head is None else tensor.view(*tensor.shape[:-1], -1, head).transpose(1, 2)

    return keep
