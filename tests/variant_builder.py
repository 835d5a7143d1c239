"""Builds variants in tests, and graphs with wrong outputs."""

import numpy as np

from compress.export import BuildContext
from compress.variants import VARIANTS


def build(name, source, work, **context):
    """Build the variant ``name`` from ``source`` into ``work``; returns its FolderInfo."""
    variant = VARIANTS[name]
    return variant.make(BuildContext(variant.info, source, work, **context))


def add_to_logits(proto, difference):
    """Return an ONNX model with a number added to its logits."""
    import onnx

    for node in proto.graph.node:
        node.output[:] = ["right" if name == "logits" else name for name in node.output]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(difference), "difference"))
    proto.graph.node.append(onnx.helper.make_node("Add", ["right", "difference"], ["logits"]))
    return proto
