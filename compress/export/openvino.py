"""Converts the ONNX export to OpenVINO's own format."""

from __future__ import annotations

from pathlib import Path

from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.parity import TOLERANCE
from compress.export.write_variant import variant_folder_info, write_variant
from compress.formats import FORMATS
from compress.model_info import FolderInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.onnx_runtime import existing_onnx
from compress.runtime.openvino_runtime import OPENVINO_ERRORS, load_openvino
from compress.runtime.runtime_errors import load_failure


def export_openvino(context: BuildContext) -> FolderInfo:
    """Convert an ONNX export to openvino_model.xml and .bin, and compare its outputs with ONNX Runtime's.

    Args:
        context: of the build; its source is the folder of the onnx-fp32 variant.

    Raises:
        ModelError: the graph cannot be converted, or its outputs differ by more than rounding.
    """
    source = context.source
    base = read_info(source)
    _convert(existing_onnx(source), context.work / FORMATS["openvino"].files[0])
    info, parity = write_variant(context, variant_folder_info(base, context.variant), open_predictor(source))
    if not parity.largest <= TOLERANCE:  # written so that NaN fails too
        raise ModelError(
            f"the outputs of the OpenVINO export of {source} differ from ONNX Runtime's by up to "
            f"{parity.largest:.2g}; rounding explains {TOLERANCE:g}."
        )
    context.console.note(f"{context.variant.name}: {parity}")
    return info


def _convert(file: Path, to: Path) -> None:
    """Convert a file, in full precision.

    Not with `openvino.convert_model`, which gives the same graph and reports each conversion over the network.
    """
    openvino = load_openvino()
    try:
        model = openvino.Core().read_model(str(file))
        openvino.save_model(model, str(to), compress_to_fp16=False)
    except OPENVINO_ERRORS as error:
        raise load_failure("OpenVINO", str(file), error) from error
