"""OpenVINO with weights of 16 bits: half the file of fp32. Products are computed in fp32, so it saves no time."""

from __future__ import annotations

from compress.export.build_context import BuildContext
from compress.export.builders.openvino import convert_to_openvino
from compress.export.comparison.parity_check import LIMITS
from compress.model_info import FolderInfo


def export_openvino_fp16(context: BuildContext) -> FolderInfo:
    """Convert an ONNX export with its weights rounded to fp16, and compare its outputs with ONNX Runtime's.

    Args:
        context: of the build; its source is the folder of the onnx-fp32 variant.

    Raises:
        ModelError: the graph cannot be converted, or its outputs differ by more than fp16 explains.
    """
    return convert_to_openvino(context, fp16_weights=True, tolerance=LIMITS["fp16"].difference)
