"""OpenVINO's own format, made from the ONNX export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compress.console import Console
from compress.errors import ModelError
from compress.export import OPENVINO_FP32
from compress.export.parity import TOLERANCE
from compress.export.write_variant import copy_companions, variant_folder_info, write_with_parity
from compress.model_info import FolderInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.model_formats import FILES
from compress.runtime.onnx_runtime import existing_onnx
from compress.runtime.openvino_runtime import OPENVINO_ERRORS, load_openvino
from compress.runtime.runtime_errors import load_failure
from compress.tasks.base import Arrays


def export_openvino(
    source: Path, work: Path, *, sample: Sequence[Arrays] | None = None, console: Console | None = None
) -> FolderInfo:
    """Convert an ONNX export into ``work`` and check that OpenVINO gives the same answers.

    Args:
        source: the folder of the onnx-fp32 variant.
        work: an existing folder that receives openvino_model.xml and .bin, config, tokenizer and compress.json.
        sample: encoded batches to compare answers on, made up where none are given.
        console: where the outcome is told.

    Raises:
        ModelError: the graph cannot be converted, or its answers differ by more than rounding.
    """
    base = read_info(source)
    _convert(existing_onnx(source), work / FILES["openvino"][0])
    copy_companions(source, work)
    info, parity = write_with_parity(work, variant_folder_info(base, OPENVINO_FP32), open_predictor(source), sample)
    if not parity.largest <= TOLERANCE:  # written so that NaN fails too
        raise ModelError(
            f"the OpenVINO export of {source} answers differently from ONNX Runtime: outputs are up to "
            f"{parity.largest:.2g} apart, and rounding explains {TOLERANCE:g}."
        )
    (console or Console("quiet")).note(f"{OPENVINO_FP32.name}: {parity}")
    return info


def _convert(file: Path, to: Path) -> None:
    """Read and write, in full precision.

    Not `openvino.convert_model`: for ONNX it gives this same graph, and reports each conversion over the network.
    """
    openvino = load_openvino()
    try:
        model = openvino.Core().read_model(str(file))
        openvino.save_model(model, str(to), compress_to_fp16=False)
    except OPENVINO_ERRORS as error:
        raise load_failure("OpenVINO", str(file), error) from error
