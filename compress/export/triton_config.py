"""config.pbtxt: the description of an ONNX model by which Triton Inference Server serves it.

The fields are those of Triton's `model_config.proto`. Shapes leave out the batch, which the server adds where
`max_batch_size` is 1 or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from compress.model_info import VariantInfo
from compress.runtime.predictor import answers

FILE = "config.pbtxt"

LARGEST_BATCH = 32
"""Rows that the server puts together at most; a rule of thumb, to be changed in the file."""

TYPES: Mapping[int, str] = {1: "TYPE_FP32", 6: "TYPE_INT32", 7: "TYPE_INT64", 9: "TYPE_BOOL", 10: "TYPE_FP16"}
"""Triton's names of ONNX's numbers for element types."""


def write_triton_config(graph: Path, variant: VariantInfo) -> None:
    """Write config.pbtxt beside an ONNX file."""
    import onnx

    model = onnx.load(graph, load_external_data=False).graph
    read = answers([each.name for each in model.output])
    outputs = [each for each in model.output if each.name in read]
    (graph.parent / FILE).write_text(triton_config(model.input, outputs, variant), encoding="utf-8")


def triton_config(inputs: Iterable[object], outputs: Iterable[object], variant: VariantInfo) -> str:
    """Return the configuration of a graph with these inputs and outputs (ONNX's `ValueInfoProto`).

    A variant whose answers depend on the batch gets one row at a time; of others the server puts requests together
    that have the same length, which is all that it does by itself. INT8 runs on the CPU.
    """
    alone = variant.batch_sensitive is not False
    parts = [
        'backend: "onnxruntime"',
        f"max_batch_size: {1 if alone else LARGEST_BATCH}",
        *(_tensor("input", each) for each in inputs),
        *(_tensor("output", each) for each in outputs),
    ]
    if not alone:
        parts.append("dynamic_batching { }")
    if variant.precision == "int8":
        parts.append("instance_group [ { kind: KIND_CPU } ]")
    return "\n".join(parts) + "\n"


def _tensor(role: str, value: object) -> str:
    tensor = value.type.tensor_type  # type: ignore[attr-defined]  # onnx has no types for its messages
    sizes = ", ".join(str(axis.dim_value or -1) for axis in tensor.shape.dim[1:])
    name = value.name  # type: ignore[attr-defined]
    return f'{role} [ {{ name: "{name}" data_type: {TYPES[tensor.elem_type]} dims: [ {sizes} ] }} ]'
