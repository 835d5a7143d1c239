"""Dynamic INT8 with unsigned weights, whose products are computed in 32 bits on every x86 processor.

All 8 bits of each weight count and nothing can saturate, at the price of a slower product where there is VNNI.
"""

from onnxruntime.quantization import QuantType

from compress.export.build_context import BuildContext
from compress.model_folder.model_info import FolderInfo
from compress.quantize.dynamic import quantize_int8_dynamic_model
from compress.quantize.quantize_export import quantize_export


def quantize_unsigned(context: BuildContext) -> FolderInfo:
    """Quantize an exported folder and compare its outputs with its source's."""
    return quantize_export(
        context, lambda proto, fp32: quantize_int8_dynamic_model(proto, fp32, weights=QuantType.QUInt8)
    )
