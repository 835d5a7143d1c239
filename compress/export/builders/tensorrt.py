"""TensorRT through ONNX Runtime: a copy of the ONNX export whose compress.json names that runtime.

TensorRT engines fit one kind of GPU and one version of the libraries, so they are built where the model is opened and
are never stored with it.
"""

import shutil

from compress.export.build_context import BuildContext
from compress.export.write_variant import write_variant
from compress.model_folder.model_info import FolderInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.onnx_runtime import ONNX_FILE, check_provider, existing_onnx
from compress.runtime.onnx_tensorrt import PROVIDER
from compress.runtime.predictor import Placement


def export_tensorrt(context: BuildContext) -> FolderInfo:
    """Copy an ONNX export as the onnx-tensorrt variant and compare its outputs.

    Args:
        context: of the build; its source is the folder of the onnx-fp32 variant.

    Raises:
        DeviceUnavailable: this machine has no TensorRT.
        ModelError: an output is not a number (fp16 ends at 65,504); what rounding costs is decided by the gate.
    """
    check_provider(PROVIDER)
    shutil.copyfile(existing_onnx(context.source), context.work / ONNX_FILE)
    reference = open_predictor(context.source)
    return write_variant(context, read_info(context.source), reference, placement=Placement("cuda"))[0]
