"""TensorRT through ONNX Runtime: the ONNX export once more, in a folder that says it runs there.

Its engines fit one kind of GPU and one version of the libraries, so they are built where the model is opened and never
travel with it.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from compress.console import Console
from compress.errors import ModelError
from compress.export.write_variant import copy_companions, variant_folder_info, write_with_parity
from compress.model_info import FolderInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.model_formats import TENSORRT
from compress.runtime.onnx_runtime import ONNX_FILE, existing_onnx
from compress.runtime.onnx_tensorrt import check_tensorrt
from compress.runtime.predictor import Placement
from compress.tasks.base import Arrays


def export_tensorrt(
    source: Path, work: Path, *, sample: Sequence[Arrays] | None = None, console: Console | None = None
) -> FolderInfo:
    """Copy an ONNX export into ``work`` as the onnx-tensorrt variant and compare its answers.

    Args:
        source: the folder of the onnx-fp32 variant.
        work: an existing folder.
        sample: encoded batches to compare answers on, made up where none are given.
        console: where the outcome is told.

    Raises:
        DeviceUnavailable: this machine has no TensorRT.
        ModelError: an output is not a number (fp16 ends at 65,504); what rounding costs is the gate's business.
    """
    check_tensorrt()
    base = read_info(source)
    shutil.copyfile(existing_onnx(source), work / ONNX_FILE)
    copy_companions(source, work)
    reference = open_predictor(source)
    info, parity = write_with_parity(work, variant_folder_info(base, TENSORRT), reference, sample, Placement("cuda"))
    if math.isnan(parity.largest):
        raise ModelError(f"{TENSORRT.name} of {source} gives outputs that are not numbers: they leave fp16's range.")
    (console or Console("quiet")).note(f"{TENSORRT.name}: {parity}")
    return info
