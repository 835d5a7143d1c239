"""The parts of an encoder (layers, linear parts, shapes) by the paths in `compress.families`, and their outputs.

Hidden states, queries, keys and values at chosen layers are captured by forward hooks. Fast attention (sdpa) returns no
attention maps, and `output_hidden_states` keeps the states of all layers in memory. Hooks on the layers' linear parts
work with every attention implementation, keep gradients, and store only the requested tensors.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from compress.errors import ModelError
from compress.families import Family, family_named
from compress.losses import EMBEDDINGS, LayerPart
from compress.model_folder.model_info import ShapeInfo


def family_of(model: PreTrainedModel | PreTrainedConfig) -> Family:
    """Return the family of a model or config; a non-uniform shape belongs to the family it was pruned from."""
    config = model.config if isinstance(model, PreTrainedModel) else model
    return family_named(str(config.model_type))


def base_of(model: PreTrainedModel) -> PreTrainedModel:
    """Return the encoder without its head."""
    base = model.base_model
    assert isinstance(base, PreTrainedModel)
    return base


def word_embeddings(model: PreTrainedModel) -> nn.Embedding:
    """Return the embedding module of the word vectors."""
    vectors = base_of(model).get_input_embeddings()
    assert isinstance(vectors, nn.Embedding)
    return vectors


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """Return the layers in order of depth; a shared layer is listed once for each depth."""
    family = family_of(model)
    layers = list(base_of(model).get_submodule(family.layers).children())
    if not family.shared_layers:
        return layers
    if model.config.num_hidden_groups != 1 or model.config.inner_group_num != 1:
        raise ModelError(f"{family.name} with several layer groups is not supported; got a config with more than one.")
    return layers * int(model.config.num_hidden_layers)


def part(layer: nn.Module, path: str) -> nn.Linear:
    """Return a linear part of a layer by its path in the family."""
    module = layer.get_submodule(path)
    if not isinstance(module, nn.Linear):
        raise ModelError(f"{path} should be a linear layer, but it is a {type(module).__name__}.")
    return module


def head_size(model: PreTrainedModel | PreTrainedConfig) -> int:
    """Return the width of one attention head, which pruning does not change."""
    config = model.config if isinstance(model, PreTrainedModel) else model
    if not family_of(config).has_attention:
        return 0
    if isinstance(size := getattr(config, "head_size", None), int):
        return size  # a non-uniform shape, whose head count no longer gives it
    return int(getattr(config, family_of(config).attention_width_key)) // int(config.num_attention_heads)


def head_channels(heads: Sequence[int], size: int) -> list[int]:
    """Return the channels of these heads, each of ``size`` channels."""
    return [head * size + offset for head in heads for offset in range(size)]


def layer_shapes(model: PreTrainedModel) -> list[tuple[int, int]]:
    """Return (heads, FFN width) of each layer, read from the weights, not from the config; empty without attention."""
    if not family_of(model).has_attention:
        return []
    family, size = family_of(model), head_size(model)
    pairs = [(part(layer, family.attention_output), part(layer, family.ffn_out)) for layer in layers_of(model)]
    return [(attention.in_features // size, ffn.in_features) for attention, ffn in pairs]


def shape_of(model: PreTrainedModel) -> ShapeInfo:
    """Return the model's size as it is recorded in compress.json."""
    shapes = layer_shapes(model)
    embeddings = base_of(model).get_submodule("embeddings")
    hidden, width = int(model.config.hidden_size), word_embeddings(model).embedding_dim
    return ShapeInfo(
        family=family_of(model).name,
        hidden=hidden,
        heads=tuple(heads for heads, _ in shapes),
        ffn=tuple(ffn for _, ffn in shapes),
        vocabulary=int(model.config.vocab_size),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        embedding_parameters=sum(parameter.numel() for parameter in embeddings.parameters()),
        head_size=head_size(model) or None,
        embedding_size=width if width != hidden else None,
    )


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
