"""Static INT8: activations are quantized with ranges that were observed on sample rows before (calibration).

Nothing is measured at run time, and a row's outputs do not depend on its batch; texts unlike the sample may exceed the
ranges. Three ways to choose them: all observed values (`static-minmax`), the range that loses the least information
about their distribution (`static-entropy`), and all but the most extreme values (`static-percentile`). Embeddings are
stored as integers as in dynamic INT8.
"""

import io
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import CalibrationDataReader, TensorsData, create_calibrator
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import save_and_reload_model_with_shape_infer

from compress.export.build_context import BuildContext
from compress.model_folder.model_info import FolderInfo
from compress.quantize.calibration_rows import calibration_rows, single_rows
from compress.quantize.dynamic import EMBEDDINGS, quantize_int8_dynamic_model
from compress.quantize.integer_products import PRODUCTS, avoid_saturation, names_for_quantizers, product_names
from compress.quantize.quantize_export import copy_of, prepare, quantize_export
from compress.tasks.base import Arrays

RANGES: Mapping[str, CalibrationMethod] = {
    "static-minmax": CalibrationMethod.MinMax,
    "static-entropy": CalibrationMethod.Entropy,
    "static-percentile": CalibrationMethod.Percentile,
}
"""How ranges are chosen, by the name of the method."""

PERCENTILE = 99.999
"""Share of the observed values inside the range of `static-percentile`. Encoders have few activations far outside the
others, and need them: at 99.9 scores collapse."""


def quantize_int8_static(context: BuildContext) -> FolderInfo:
    """Quantize an exported folder with ranges of its calibration rows, and compare its outputs with its source's.

    Raises:
        UsageError: there are too few calibration rows.
    """
    rows, ranges = calibration_rows(context), RANGES[str(context.variant.method)]
    return quantize_export(context, lambda proto, fp32: quantize_int8_static_model(proto, rows, fp32, ranges=ranges))


def quantize_int8_static_model(
    proto: onnx.ModelProto,
    batches: Sequence[Arrays],
    fp32_products: Collection[str] = (),
    *,
    ranges: CalibrationMethod = CalibrationMethod.MinMax,
) -> onnx.ModelProto:
    """Return the INT8 graph of an fp32 one, which is left unchanged, with ranges observed on ``batches``."""
    prepared = prepare(quantize_int8_dynamic_model(proto, operators=EMBEDDINGS))
    quantizer = QDQQuantizer(
        save_and_reload_model_with_shape_infer(copy_of(prepared)),
        per_channel=True,
        reduce_range=False,
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QUInt8,
        tensors_range=observe_ranges(prepared, batches, ranges),
        nodes_to_quantize=list(product_names(prepared)),
        nodes_to_exclude=names_for_quantizers(fp32_products),
        op_types_to_quantize=list(PRODUCTS),
        extra_options={"OpTypesToExcludeOutputQuantization": list(PRODUCTS)},
    )
    quantizer.quantize_model()
    quantized: onnx.ModelProto = quantizer.model.model
    del quantized.graph.value_info[:]
    del quantized.metadata_props[:]
    avoid_saturation(quantized, prepared)
    return quantized


def observe_ranges(proto: onnx.ModelProto, batches: Sequence[Arrays], method: CalibrationMethod) -> TensorsData:
    """Return the range of each product's input over all rows."""
    options = {"symmetric": False, "percentile": PERCENTILE}
    with tempfile.TemporaryDirectory(prefix="compress-int8-") as folder, redirect_stdout(io.StringIO()):
        source = Path(folder) / "model.onnx"
        onnx.save(proto, source)
        calibrator = create_calibrator(
            source,
            list(PRODUCTS),
            augmented_model_path=str(Path(folder) / "observed.onnx"),
            calibrate_method=method,
            extra_options=options,
        )
        inputs = [given.name for given in proto.graph.input]
        for row in single_rows(batches):  # histograms need rows of one length
            calibrator.collect_data(_OneRow({name: row[name].astype(np.int64) for name in inputs}))
        return calibrator.compute_data()


@dataclass
class _OneRow(CalibrationDataReader):  # type: ignore[misc]
    row: dict[str, NDArray[Any]] | None

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        row, self.row = self.row, None
        return row
