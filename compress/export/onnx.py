"""ONNX, with dynamic batch and length: what ONNX Runtime, browsers and phones read."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
import torch
from torch.onnx.errors import OnnxExporterError
from transformers import PreTrainedModel

from compress.console import Console
from compress.data.tokenizer import TOKENIZER_FILE
from compress.errors import ModelError
from compress.export import ONNX_FP32
from compress.export.parity import TOLERANCE
from compress.export.write_onnx_variant import finish
from compress.model_info import FolderInfo, find_info
from compress.models.encoder_parts import family_of, shape_of
from compress.models.load_save import load, load_tokenizer
from compress.runtime import FP32
from compress.runtime.predictor import ONE_THREAD
from compress.runtime.torch_eager import TorchPredictor
from compress.tasks.base import Arrays

OPSET = 20
"""The first with GELU as one operator: on MiniLM 4 % faster in fp32 and 11 % in INT8 than opset 18. Later ones bring
these graphs nothing, and fewer runtimes read them."""

LARGEST = 2 * 10**9
"""Bytes of weights that fit one ONNX file (protobuf ends at 2 GiB)."""


def export_onnx(
    source: Path, work: Path, *, sample: Sequence[Arrays] | None = None, console: Console | None = None
) -> FolderInfo:
    """Export a model folder into ``work`` and check that ONNX Runtime gives the same answers.

    Args:
        source: a model folder, or a plain Hugging Face one.
        work: an existing folder that receives model.onnx, config, tokenizer and compress.json.
        sample: encoded batches to compare answers on, made up where none are given.
        console: where the outcome is told.

    Raises:
        ModelError: the model cannot be exported, or its answers differ by more than rounding.
    """
    model = load(source)
    proto = export_onnx_from_model(model)
    base = find_info(source) or FolderInfo(step="export", made_by="", shape=shape_of(model))
    if not (source / TOKENIZER_FILE).is_file():  # older checkpoints have only the files that Python can read
        load_tokenizer(source).save_pretrained(work)
    reference = TorchPredictor(model, family_of(model).inputs, ONE_THREAD, FP32)
    info, parity = finish(proto, source, work, base, ONNX_FP32, reference, sample)
    if not parity.largest <= TOLERANCE:  # written so that NaN fails too
        raise ModelError(
            f"the ONNX export of {source} answers differently from PyTorch: outputs are up to {parity.largest:.2g} "
            f"apart, and rounding explains {TOLERANCE:g}."
        )
    (console or Console("quiet")).note(f"onnx-fp32: {parity}")
    return info


def export_onnx_from_model(model: PreTrainedModel) -> onnx.ModelProto:
    """The ONNX graph of a model in memory, which is left as it was.

    Inputs and outputs carry the names they have in transformers; batch and length are free.
    """
    size = sum(parameter.numel() * 4 for parameter in model.parameters())
    if size > LARGEST:
        raise ModelError(f"the model's weights take {size / 10**9:.1f} GB, and one ONNX file holds at most 2 GB.")
    example = _example(model)
    with _as_exported(model), torch.no_grad():
        names = [name for name, value in model(**example).items() if isinstance(value, torch.Tensor)]
        try:
            program = torch.onnx.export(
                model,
                kwargs=example,
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes={name: {0: "batch", 1: "length"} for name in example},
                input_names=list(example),
                output_names=names,
                verbose=False,
            )
        except OnnxExporterError as error:
            raise ModelError(
                f"a {family_of(model).name} model like this cannot be exported: {_cause(error)}"
            ) from error
    assert program is not None  # None is what the old exporter returns
    return _without_traces(program.model_proto)


def _example(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Inputs to trace with: sizes that mean nothing else in a model, and padding, so that no mask is left out."""
    arrays = {name: torch.ones(2, 7, dtype=torch.long, device=model.device) for name in family_of(model).inputs}
    arrays["attention_mask"][1, 5:] = 0
    return arrays


@contextmanager
def _as_exported(model: PreTrainedModel) -> Iterator[None]:
    """Eager attention gives the graph that ONNX Runtime runs fastest; what the exporter says is about itself."""
    training, attention = model.training, model.config._attn_implementation
    chatter = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = chatter.level
    model.train(False)
    model.set_attn_implementation("eager")
    chatter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        model.set_attn_implementation(attention)
        model.train(training)
        chatter.setLevel(level)


def _without_traces(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Drop what only tells how the graph came about: paths of this machine, and shapes that trip the quantizer."""
    graph = proto.graph
    del graph.value_info[:]
    for part in (proto, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    return proto


def _cause(error: BaseException) -> str:
    """The first line of what lies beneath: the exporter wraps it in pages of advice to its own developers."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().partition("\n")[0]
