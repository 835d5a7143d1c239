"""Exports to ONNX with dynamic batch and length, which ONNX Runtime, browsers and phones read."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import torch
from torch.onnx.errors import OnnxExporterError
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.from_pytorch import example_inputs, exporter_config, take_over, write_compared
from compress.export.inference_graph import inference_modules, lstm_operators, make_reshapes_constant
from compress.model_folder.model_info import FolderInfo
from compress.models.embedding_model import token_states
from compress.models.encoder_parts import family_of
from compress.models.load_save import load
from compress.runtime.onnx_runtime import ONNX_FILE
from compress.runtime.predictor import first_line, root_cause

OPSET = 20
"""The first with GELU as one operator: on MiniLM 4 % faster in fp32 and 11 % in INT8 than opset 18. Later ones do not
improve these graphs, and fewer runtimes read them."""

LARGEST = 2 * 10**9
"""Bytes of weights that fit into one ONNX file (protobuf is limited to 2 GiB)."""


def export_onnx(context: BuildContext) -> FolderInfo:
    """Export a model folder to model.onnx, config, tokenizer and compress.json, and compare its outputs with PyTorch's.

    Args:
        context: of the build; its source is a model folder, or a plain Hugging Face one.

    Raises:
        ModelError: the model cannot be exported, or its outputs differ by more than rounding.
    """
    model = load(context.source)
    proto = export_onnx_from_model(model)
    onnx.save(proto, context.work / ONNX_FILE)
    base = take_over(context, model)
    inputs = tuple(given.name for given in proto.graph.input)
    return write_compared(context, model, base, inputs)


def export_onnx_from_model(model: PreTrainedModel) -> onnx.ModelProto:
    """Return the ONNX graph of a model in memory, which is left unchanged.

    Inputs and outputs carry the names they have in transformers; batch and length are free. The states of an
    embedding model's tokens are a second output, for tools that pool by themselves; who does not ask does not pay.
    """
    size = sum(parameter.numel() * 4 for parameter in model.parameters())
    if size > LARGEST:
        raise ModelError(f"the model's weights take {size / 10**9:.1f} GB, and one ONNX file holds at most 2 GB.")
    axes, example = exporter_config(model).inputs, example_inputs(model)
    with export_mode(model), token_states(model), lstm_operators(model), torch.no_grad():
        names = [name for name, value in model(**example).items() if isinstance(value, torch.Tensor)]
        try:
            program = torch.onnx.export(
                model,
                kwargs=example,
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=axes,
                input_names=list(axes),
                output_names=names,
                verbose=False,
            )
        except OnnxExporterError as error:
            reason = first_line(root_cause(error))
            raise ModelError(f"a {family_of(model).name} model like this cannot be exported: {reason}") from error
    assert program is not None  # None is what the old exporter returns
    return without_traces(program.model_proto)


@contextmanager
def export_mode(model: PreTrainedModel) -> Iterator[None]:
    """Use the modules made for inference, and silence the exporter's own warnings."""
    training = model.training
    model.train(False)
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), inference_modules(model):
            warnings.simplefilter("ignore")
            yield
    finally:
        model.train(training)


def without_traces(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Remove traces of the export: paths of this machine, and shapes on which the quantizer fails."""
    graph = proto.graph
    make_reshapes_constant(graph)
    del graph.value_info[:]
    for part in (proto, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    return proto
