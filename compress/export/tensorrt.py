"""TensorRT through ONNX Runtime: a copy of the ONNX export whose compress.json names that runtime.

TensorRT engines fit one kind of GPU and one version of the libraries, so they are built where the model is opened and
are never stored with it.
"""

from __future__ import annotations

import math
import shutil

from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.write_variant import variant_folder_info, write_variant
from compress.model_info import FolderInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.onnx_runtime import ONNX_FILE, existing_onnx
from compress.runtime.onnx_tensorrt import check_tensorrt
from compress.runtime.predictor import Placement


def export_tensorrt(context: BuildContext) -> FolderInfo:
    """Copy an ONNX export as the onnx-tensorrt variant and compare its outputs.

    Args:
        context: of the build; its source is the folder of the onnx-fp32 variant.

    Raises:
        DeviceUnavailable: this machine has no TensorRT.
        ModelError: an output is not a number (fp16 ends at 65,504); what rounding costs is decided by the gate.
    """
    check_tensorrt()
    source, name = context.source, context.variant.name
    shutil.copyfile(existing_onnx(source), context.work / ONNX_FILE)
    info = variant_folder_info(read_info(source), context.variant)
    info, parity = write_variant(context, info, open_predictor(source), Placement("cuda"))
    if math.isnan(parity.largest):
        raise ModelError(f"{name} of {source} has outputs that are not numbers: they exceed the range of fp16.")
    context.console.note(f"{name}: {parity}")
    return info
