"""Exported encoders with random weights, of any depth and sizes: what is timed where no weight matters."""

from collections.abc import Mapping, Sequence
from itertools import count

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from transformers import AutoConfig

from compress.export.builders.onnx import export_onnx_from_model
from compress.families import family_named
from compress.model_folder.model_info import ShapeInfo
from compress.models.heads import HEADS
from compress.models.nonuniform_models import from_config, reshape_config

Sizes = tuple[int, int]
"""The number of heads and the FFN width of every layer."""

VOCABULARY = 1000
"""Word pieces of the timed models: looking vectors up takes as long in any vocabulary."""
SPARE_POSITIONS = 8
"""Rows of the position table beyond the length: some families skip the first ones."""


class RandomModels:
    """Graphs of encoders as large as a shape at most, all of whose layers are alike, for texts of one length.

    A model of each depth is exported once, and its graph is cut to the sizes that are asked for.
    """

    def __init__(self, shape: ShapeInfo, length: int) -> None:
        self.most: Sizes = (max(shape.heads), max(shape.ffn))
        self.head_size = shape.head_size or shape.hidden // max(shape.heads)
        others = [shape.hidden, shape.embedding_size or 0, VOCABULARY, length, length + SPARE_POSITIONS]
        self._shape, self._length = shape, length
        self._sizes = unique_sizes(*self.most, self.head_size, others)
        self._graphs = dict[int, onnx.ModelProto]()

    def graph(self, layers: int, sizes: Sizes) -> onnx.ModelProto:
        """Return the graph of so many layers that have these sizes each."""
        if layers not in self._graphs:
            self._graphs[layers] = export_random_model(self._shape, self._sizes, self.head_size, self._length, layers)
        return resize_graph(self._graphs[layers], self._sizes, sizes, self.head_size)


def export_random_model(shape: ShapeInfo, sizes: Sizes, head_size: int, length: int, layers: int) -> onnx.ModelProto:
    """Return the graph of an encoder of this hidden size with these sizes in every layer."""
    family, embedding = family_named(shape.family), shape.embedding_size
    config = AutoConfig.for_model(
        family.name,
        vocab_size=VOCABULARY,
        hidden_size=shape.hidden,
        num_hidden_layers=layers,
        num_attention_heads=shape.hidden // head_size,
        max_position_embeddings=length + SPARE_POSITIONS,
        **({"embedding_size": embedding or shape.hidden} if family.own_embedding_size else {}),
    )
    factors = None if family.own_embedding_size else embedding
    config = reshape_config(config, shape.hidden, [sizes] * layers, head_size, factors)
    with torch.random.fork_rng(devices=[]):
        model = from_config(HEADS["encoder"].model_class(type(config)), config)
        for parameter in model.parameters():  # equal tensors (biases of zero) would be stored once
            torch.nn.init.normal_(parameter, std=0.02)
    return export_onnx_from_model(model)


PRODUCTS = (1, 2, 3)
"""Queries, keys and values may share a product, of up to three times the heads."""
SIZE_ATTRIBUTES = ("num_heads", "kv_num_heads", "q_num_heads")


def unique_sizes(heads: int, ffn: int, head_size: int, others: Sequence[int]) -> tuple[int, int]:
    """Return a number of heads and an FFN width, not smaller than given, whose multiples are not in ``others``.

    Args:
        heads: the largest number of heads that graphs will be resized to.
        ffn: the largest FFN width.
        head_size: the width of a head.
        others: every other size of the model.
    """
    taken = {*others, head_size, *(product * head_size for product in PRODUCTS)}
    wanted = next(number for number in count(max(heads, 5)) if taken.isdisjoint(_sizes(number, number, head_size)))
    taken |= set(_sizes(wanted, wanted, head_size))
    return wanted, next(width for width in count(ffn) if width not in taken)


def resize_graph(
    proto: onnx.ModelProto, exported: tuple[int, int], wanted: tuple[int, int], head_size: int
) -> onnx.ModelProto:
    """Return the graph with other (heads, FFN width) in every layer, whose weights are parts of the exported ones.

    Args:
        proto: a graph exported from a model with the sizes of `unique_sizes` in every layer.
        exported: these sizes.
        wanted: others, not larger.
        head_size: the width of a head.
    """
    sizes = _sizes(*exported, head_size)
    changes = dict(zip(sizes, _sizes(*wanted, head_size), strict=True))
    resized = onnx.ModelProto()
    resized.CopyFrom(proto)
    for tensor in resized.graph.initializer:
        _resize_tensor(tensor, changes)
    for attribute in (each for node in resized.graph.node for each in node.attribute):
        if attribute.HasField("t"):
            _resize_tensor(attribute.t, changes)
        elif attribute.name in SIZE_ATTRIBUTES:
            attribute.i = changes.get(attribute.i, attribute.i)
        elif attribute.name == "value_ints":
            attribute.ints[:] = [changes.get(value, value) for value in attribute.ints]
    return resized


def _sizes(heads: int, ffn: int, head_size: int) -> list[int]:
    return [*(count * size for size in (heads, heads * head_size) for count in PRODUCTS), ffn]


def _resize_tensor(tensor: onnx.TensorProto, changes: Mapping[int, int]) -> None:
    """Cut a tensor's axes, and replace integers in it, that have a changed size."""
    is_shape = tensor.data_type == onnx.TensorProto.INT64 and len(tensor.dims) <= 1
    if not is_shape and changes.keys().isdisjoint(tensor.dims):
        return
    values = numpy_helper.to_array(tensor)
    if is_shape:
        values = np.vectorize(lambda value: changes.get(value, value), otypes=[np.int64])(values)
    cut = values[tuple(slice(changes.get(size, size)) for size in values.shape)] if values.ndim else values
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(cut).reshape(cut.shape), tensor.name))
