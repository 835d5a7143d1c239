"""Converts the ONNX export to OpenVINO's own format, with weights of 32 or 16 bits.

With 16 bits the file is half as large; products are computed in fp32, so it saves no time.
"""

from pathlib import Path
from typing import Any

from compress.errors import FREE_SPACE, CompressError
from compress.export.build_context import BuildContext
from compress.export.comparison.parity import TOLERANCE
from compress.export.comparison.parity_check import LIMITS
from compress.export.write_variant import write_variant
from compress.formats import FORMATS
from compress.model_folder.model_info import FolderInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.onnx_runtime import existing_onnx
from compress.runtime.openvino_runtime import OPENVINO_ERRORS, load_openvino
from compress.runtime.predictor import first_line, load_failure


def export_openvino(context: BuildContext) -> FolderInfo:
    """Convert an ONNX export to openvino_model.xml and .bin, and compare its outputs with ONNX Runtime's.

    Args:
        context: of the build; its source is the folder of the onnx-fp32 variant.

    Raises:
        ModelError: the graph cannot be converted, or its outputs differ by more than rounding.
    """
    return convert_to_openvino(context, fp16_weights=False, tolerance=TOLERANCE)


def convert_to_openvino(context: BuildContext, *, fp16_weights: bool, tolerance: float) -> FolderInfo:
    """Convert an ONNX export, with its weights in fp32 or rounded to fp16; outputs may differ by ``tolerance``."""
    graph = existing_onnx(context.source)
    openvino = load_openvino()
    try:
        # `openvino.convert_model` gives the same graph and reports each conversion over the network.
        model = openvino.Core().read_model(str(graph))
    except OPENVINO_ERRORS as error:
        raise load_failure("OpenVINO", graph, error) from error
    write_openvino(model, context.work, fp16_weights=fp16_weights)
    reference = open_predictor(context.source)
    return write_variant(context, read_info(context.source), reference, tolerance=tolerance)[0]


def write_openvino(model: Any, folder: Path, *, fp16_weights: bool = False) -> None:
    """Write a model of OpenVINO as openvino_model.xml and .bin into ``folder``."""
    path = folder / FORMATS["openvino"].files[0]
    try:
        load_openvino().save_model(model, str(path), compress_to_fp16=fp16_weights)
    except OPENVINO_ERRORS as error:  # a full disk is no OSError to it
        raise CompressError(f"{path} could not be written: {first_line(error)}", hint=FREE_SPACE) from error


def export_openvino_fp16(context: BuildContext) -> FolderInfo:
    """Convert an ONNX export with its weights rounded to fp16, and compare its outputs with ONNX Runtime's.

    Args:
        context: of the build; its source is the folder of the onnx-fp32 variant.

    Raises:
        ModelError: the graph cannot be converted, or its outputs differ by more than fp16 explains.
    """
    return convert_to_openvino(context, fp16_weights=True, tolerance=LIMITS["fp16"].difference)
