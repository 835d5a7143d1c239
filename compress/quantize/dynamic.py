"""Dynamic INT8: weights are stored as 8-bit integers, activations are quantized at run time, batch by batch.

No calibration is needed. Matrix products run on integers; embeddings are stored as integers and scaled when they are
looked up. Since a batch shares one scale, a row's outputs depend a little on the other rows of its batch.
"""

from collections.abc import Collection

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from compress.export.build_context import BuildContext
from compress.model_folder.model_info import FolderInfo
from compress.quantize.integer_products import PRODUCTS, avoid_saturation, names_for_quantizers
from compress.quantize.quantize_export import call_quantizer, prepare, quantize_export

EMBEDDINGS = ("Gather",)
"""INT8 embeddings with one scale per table added a tenth to the error of MiniLM's logits and removed 60 % of its file.
Attention and normalization stay in fp32."""


def quantize_int8_dynamic(context: BuildContext) -> FolderInfo:
    """Quantize an exported folder and compare its outputs with its source's.

    Args:
        context: of the build; its source is a folder with an fp32 ONNX model that compress exported.
    """
    return quantize_export(context, quantize_int8_dynamic_model)


def quantize_int8_dynamic_model(
    proto: onnx.ModelProto,
    fp32_products: Collection[str] = (),
    *,
    operators: Collection[str] = (*PRODUCTS, *EMBEDDINGS),
    weights: QuantType = QuantType.QInt8,
) -> onnx.ModelProto:
    """Return the INT8 graph of an fp32 one, which is left unchanged; a product's weights get one scale per column.

    Args:
        proto: the fp32 graph.
        fp32_products: names of products that are not quantized.
        operators: what is quantized.
        weights: signed ones are scaled so that no CPU saturates.
    """
    prepared = prepare(proto)
    quantized = call_quantizer(
        prepared,
        lambda copy, target: quantize_dynamic(
            copy,
            target,
            list(operators),
            per_channel=True,
            weight_type=weights,
            nodes_to_exclude=names_for_quantizers(fp32_products),
        ),
    )
    avoid_saturation(quantized, prepared)
    return quantized
