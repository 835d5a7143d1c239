"""Static INT8 by Intel Neural Compressor: its tuning tries configurations in order until one keeps the score.

The library quantizes the PyTorch model, not its ONNX export, and decides which operations are rounded and how ranges
are chosen; the result is exported as pairs of QuantizeLinear and DequantizeLinear (QDQ), which ONNX Runtime turns into
integer products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import onnx
import torch
from torch import nn
from transformers import PreTrainedModel

from compress.environment import require
from compress.environment.silence_libraries import silent_libraries
from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.builders.onnx import OPSET, export_mode, without_traces
from compress.export.exporter_config import example_inputs, exporter_config
from compress.export.lstm_operators import refuse_lstm
from compress.export.positional_model import PositionalModel
from compress.export.source_folder import take_over
from compress.measure.predict_rows import Forward
from compress.model_info import FolderInfo
from compress.models.encoder_parts import family_of, layers_of, part
from compress.models.load_save import load
from compress.quantize.calibration_rows import calibration_rows
from compress.quantize.dynamic import EMBEDDINGS, quantize_int8_dynamic_model
from compress.quantize.qdq_graph import store_integer_weights
from compress.quantize.quantize_export import write_quantized
from compress.quantize.train_score import train_scorer
from compress.runtime.model_formats import FP32
from compress.runtime.predictor import ONE_THREAD
from compress.runtime.runtime_errors import first_line, root_cause
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
