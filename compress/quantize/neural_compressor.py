"""Static INT8 by Intel Neural Compressor: its tuning tries configurations in order until one keeps the score.

The library quantizes the PyTorch model, not its ONNX export, and decides which operations are rounded and how ranges
are chosen; the result is exported as pairs of QuantizeLinear and DequantizeLinear (QDQ), which ONNX Runtime turns into
integer products. The exported graph holds fp32 weights, which it quantizes and dequantizes whenever it runs; each
becomes one INT8 matrix with a scale for each column, chosen so that no CPU saturates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn
from transformers import PreTrainedModel

from compress.environment import require
from compress.environment.libraries import silent_libraries
from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.builders.onnx import OPSET, export_mode, without_traces
from compress.export.from_pytorch import PositionalModel, example_inputs, exporter_config, take_over
from compress.export.inference_graph import refuse_lstm, remove_unused
from compress.measure.predict_rows import Forward
from compress.model_folder.model_info import FolderInfo
from compress.models.encoder_parts import family_of, layers_of, part
from compress.models.load_save import load
from compress.quantize.calibration_rows import calibration_rows, train_scorer
from compress.quantize.dynamic import EMBEDDINGS, quantize_int8_dynamic_model
from compress.quantize.integer_products import PRODUCTS, weight_tables
from compress.quantize.quantize_export import write_quantized
from compress.quantize.saturation import unsaturated_scales
from compress.runtime.model_formats import FP32
from compress.runtime.predictor import ONE_THREAD, first_line, root_cause
from compress.runtime.torch_eager import TorchPredictor
from compress.tasks.base import Arrays

LIBRARY_ERRORS = (RuntimeError, AssertionError, ValueError, TypeError, KeyError, AttributeError)
"""Errors that it raises about models that it does not support."""


def quantize_neural_compressor(context: BuildContext) -> FolderInfo:
    """Quantize a model folder, export it, and compare its outputs with those of the model.

    Args:
        context: of the build; its source is a model folder, and its settings hold ``max_drop``, what the score on rows
            of train may lose before the next configuration is tried. Without such rows the first one is used.

    Raises:
        ModelError: the library cannot read the model, or the result is broken.
    """
    rows = calibration_rows(context)
    score = train_scorer(context) if context.train_rows() else (lambda run: 0.0)
    model, max_drop = load(context.source), context.settings.get("max_drop", 0.0)
    refuse_lstm(model, "neural-compressor")
    try:
        proto = quantize_neural_compressor_model(model, rows, score, max_drop=max_drop)
    except LIBRARY_ERRORS as error:
        reason = first_line(root_cause(error))
        family = family_of(model).name
        raise ModelError(f"neural-compressor cannot quantize a {family} model like this: {reason}") from error
    return write_quantized(context, proto, take_over(context, model), TorchPredictor(model, ONE_THREAD, FP32))


def quantize_neural_compressor_model(
    model: PreTrainedModel, rows: Sequence[Arrays], score: Callable[[Forward], float], *, max_drop: float
) -> onnx.ModelProto:
    """Return the INT8 graph of a model in memory, which is left unchanged.

    Args:
        model: any encoder that torch.export can trace.
        rows: batches on which ranges are observed.
        score: of a model on rows with labels, larger being better.
        max_drop: what the score may lose; where every configuration loses more, the best one is used.
    """
    with silent_libraries(), export_mode(model), torch.no_grad():
        require("neural_compressor", "neural-compressor")
        from neural_compressor.torch import quantization
        from neural_compressor.torch.export import export

        traced = _CalledByArrays(model)
        axes, example = exporter_config(model).inputs, tuple(example_inputs(model).values())
        shapes = {"arrays": tuple({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for _ in example)}
        graph = export(traced, example, dynamic_shapes=shapes)
        tried = configurations(quantization, traced)
        reference = score(traced.run_of(traced))
        quantized = quantization.autotune(
            graph,
            quantization.TuningConfig(
                config_set=tried,
                tolerable_loss=max_drop,
                max_trials=len(tried),
            ),
            # The library allows a share of the first result, the unquantized model's, which is 1 here.
            eval_fn=lambda each: 1.0 + score(traced.run_of(each)) - reference,
            run_fn=partial(_observe, traced, rows),
        )
        program = torch.onnx.export(
            quantized,
            args=example,
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=tuple(axes.values()),
            input_names=list(axes),
            output_names=list(traced.outputs),
            verbose=False,
        )
        assert program is not None  # None is what the old exporter returns
        proto = without_traces(program.model_proto)
        store_integer_weights(proto.graph)
        return quantize_int8_dynamic_model(proto, operators=EMBEDDINGS)


def configurations(quantization: ModuleType, traced: _CalledByArrays) -> list[Any]:
    """Return what tuning tries, in this order.

    All products are quantized, with a moving average of the observed extremes as ranges, then with the ranges that lose
    the least information; then the second product of each FFN stays in fp32, whose inputs, after GELU, have the
    widest range.
    """
    fastest = quantization.StaticQuantConfig(act_algo="minmax")
    entropy, careful = (quantization.StaticQuantConfig(act_algo="kl") for _ in range(2))
    for name in traced.ffn_outputs():
        careful.set_local(name, quantization.StaticQuantConfig(w_dtype="fp32", act_dtype="fp32"))
    return [fastest, entropy, careful]


def _observe(traced: _CalledByArrays, rows: Sequence[Arrays], graph: nn.Module) -> None:
    for row in rows:
        traced.run_of(graph)(row)


class _CalledByArrays(PositionalModel):
    """A model that the library traces, and whose graphs it calibrates and scores."""

    def run_of(self, graph: nn.Module) -> Forward:
        """Return a module with these inputs and outputs as a function of arrays."""

        def run(batch: Arrays) -> Arrays:
            results = graph(*(torch.from_numpy(batch[name]) for name in self.inputs))
            return {name: values.numpy() for name, values in zip(self.outputs, results, strict=True)}

        return run

    def ffn_outputs(self) -> list[str]:
        """Return the names of the second linear layer of each FFN."""
        family = family_of(self.model)
        wanted = {id(part(layer, family.ffn_out)) for layer in layers_of(self.model)}
        return [name for name, module in self.named_modules() if id(module) in wanted]


ROUNDING = ("DequantizeLinear", "Clip", "QuantizeLinear")
"""What exporters put between the weights and their product."""


def store_integer_weights(graph: onnx.GraphProto) -> None:
    """Replace the weights of all quantized products by integers (inputs, columns), in place."""
    tables = weight_tables(graph)
    made_by = {output: node for node in graph.node for output in node.output}
    dequantize: dict[str, onnx.NodeProto] = {}
    for product in graph.node:
        if product.op_type not in PRODUCTS:
            continue
        name, passed = product.input[1], []
        while name in made_by and made_by[name].op_type in (*ROUNDING, "Transpose"):
            passed.append(made_by[name].op_type)
            name = made_by[name].input[0]
        if name not in tables or "QuantizeLinear" not in passed:
            continue
        attribute = next((each for each in product.attribute if each.name == "transB" and each.i), None)
        if attribute:
            product.attribute.remove(attribute)
        if name not in dequantize:
            table = numpy_helper.to_array(tables[name])
            is_transposed = (attribute is not None) != ("Transpose" in passed)
            graph.initializer.extend(_integers(name, table.T if is_transposed else table))
            scaled = [f"{name}_quantized", f"{name}_scale"]
            dequantize[name] = helper.make_node("DequantizeLinear", scaled, [f"{name}_dequantized"], name, axis=1)
        product.input[1] = dequantize[name].output[0]
    nodes = [*dequantize.values(), *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    remove_unused(graph)


def _integers(name: str, weights: np.ndarray) -> list[onnx.TensorProto]:
    """Return weights (inputs, columns) as integers, and their scales."""
    scales = unsaturated_scales(weights)
    integers = np.rint(weights / scales).astype(np.int8)
    return [numpy_helper.from_array(integers, f"{name}_quantized"), numpy_helper.from_array(scales, f"{name}_scale")]
