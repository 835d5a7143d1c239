"""INT8 of OpenVINO by NNCF: weights, embeddings and activations, with ranges that were observed on rows of train.

`nncf` quantizes everything; `nncf-accuracy` then returns operations to fp32, those that change outputs most first,
until the score on rows of train has lost no more than `quantize.max_drop`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from compress.environment import require
from compress.environment.libraries import silent_libraries
from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.builders.openvino import write_openvino
from compress.model_folder.model_info import FolderInfo, read_info
from compress.quantize.calibration_rows import calibration_rows, train_scorer
from compress.quantize.quantize_export import write_rounded
from compress.quantize.saturation import LARGEST_PAIR
from compress.runtime import open_predictor
from compress.runtime.onnx_runtime import existing_onnx
from compress.runtime.openvino_runtime import OPENVINO_ERRORS, load_openvino
from compress.runtime.predictor import first_line
from compress.tasks.base import Arrays

MOST_RETURNED = 5
"""Groups of operations that are returned to fp32 at most: with more the model is hardly faster than unquantized."""
RANKING_BATCHES = 4
"""Batches of sample rows by whose outputs groups are ranked; each group is compiled and run on all of them."""


def quantize_nncf(context: BuildContext) -> FolderInfo:
    """Quantize the ONNX export of a model for OpenVINO, and compare its outputs with the export's.

    Args:
        context: of the build; its source is the folder of the onnx-fp32 variant.
    """
    return _quantize(context, lambda nncf, model, rows, options: nncf.quantize(model, rows, **options))


def quantize_nncf_accuracy(context: BuildContext) -> FolderInfo:
    """Do the same, and return operations to fp32 while the score on rows of train is too low.

    Args:
        context: of the build; its settings hold ``max_drop``, what the score may lose.
    """
    score = train_scorer(context)

    def validate(compiled: Any, _rows: Iterable[Arrays]) -> float:
        inputs = [port.get_any_name() for port in compiled.inputs]
        outputs = [port.get_any_name() for port in compiled.outputs]

        def run(batch: Arrays) -> Arrays:
            results = compiled({name: batch[name] for name in inputs}).values()
            return {name: np.array(values, np.float32) for name, values in zip(outputs, results, strict=True)}

        return score(run)

    def quantize(nncf: ModuleType, model: Any, rows: Any, options: dict[str, Any]) -> Any:
        return nncf.quantize_with_accuracy_control(
            model,
            calibration_dataset=rows,
            validation_dataset=rows,
            validation_fn=validate,
            max_drop=context.settings["max_drop"],
            drop_type=nncf.DropType.ABSOLUTE,
            advanced_quantization_parameters=_without_smoothing(nncf, options.pop("advanced_parameters")),
            advanced_accuracy_restorer_parameters=nncf.AdvancedAccuracyRestorerParameters(
                max_num_iterations=MOST_RETURNED,
                ranking_subset_size=RANKING_BATCHES,
                num_ranking_workers=1,  # each would compile models and take their memory
            ),
            **options,
        )

    return _quantize(context, quantize)


def _quantize(context: BuildContext, quantize: Callable[[ModuleType, Any, Any, dict[str, Any]], Any]) -> FolderInfo:
    rows = calibration_rows(context)
    openvino = load_openvino()
    with silent_libraries():
        nncf = require("nncf", "openvino")
        try:
            model = openvino.Core().read_model(str(existing_onnx(context.source)))
            inputs = [port.get_any_name() for port in model.inputs]
            dataset = nncf.Dataset(rows, lambda row: {name: row[name] for name in inputs})
            quantized = quantize(nncf, model, dataset, _options(nncf, rows))
        except (*OPENVINO_ERRORS, nncf.errors.ParameterNotSupportedError) as error:
            raise ModelError(f"NNCF cannot quantize {context.source}: {first_line(error)}") from error
    write_openvino(quantized, context.work)
    context = replace(context, variant=context.variant.model_copy(update={"portable": not _can_saturate(quantized)}))
    return write_rounded(context, read_info(context.source), open_predictor(context.source))


def _options(nncf: ModuleType, rows: Sequence[Arrays]) -> dict[str, Any]:
    """Return the settings of both ways to quantize.

    Symmetric weights need no correction at run time; activations are asymmetric because those after GELU and softmax
    are nearly all positive, and half of a symmetric range would be unused. With the overflow fix weights have 7 bits,
    which are right on every CPU.
    """
    return {
        "preset": nncf.QuantizationPreset.MIXED,
        "model_type": nncf.ModelType.TRANSFORMER,
        "subset_size": len(rows),
        "advanced_parameters": nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.ENABLE),
    }


def _without_smoothing(nncf: ModuleType, parameters: Any) -> Any:
    """Return the parameters without SmoothQuant, which scales activations down and weights up.

    An operation that returns to fp32 gets its original weights back, but not its activations: outputs would be wrong.
    """
    return replace(parameters, smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(convolution=-1, matmul=-1))


def _can_saturate(model: Any) -> bool:
    """Whether a product has integer weights of which two neighbours can exceed 16 bits on a CPU without VNNI."""
    products = [operator for operator in model.get_ops() if operator.get_type_name() == "MatMul"]
    weights = (_integer_weights(product.input_value(1).get_node()) for product in products)
    return any(2 * int(np.abs(each.astype(np.int32)).max()) > LARGEST_PAIR for each in weights if each is not None)


def _integer_weights(node: Any) -> Any:
    """Return the 8-bit constant that a product's second input is computed from; None where it is no constant."""
    while node.get_type_name() in ("Multiply", "Subtract", "Convert", "Reshape"):
        node = node.input_value(0).get_node()
    is_integer = node.get_type_name() == "Constant" and node.get_element_type().get_type_name() == "i8"
    return node.get_data() if is_integer else None
