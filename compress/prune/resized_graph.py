"""Changes the number of heads and the FFN width in an exported graph of random weights, for timing.

Exporting takes seconds and hardly depends on the model's size; a graph with other sizes takes milliseconds. The
exported model has sizes that occur nowhere else in it, so that whatever depends on them is found by its size, in
whatever form the exporter writes attention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

import numpy as np
import onnx
from onnx import numpy_helper

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
