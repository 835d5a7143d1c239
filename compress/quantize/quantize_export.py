"""Quantizes the graph of an exported folder, notes whether any CPU computes it right, and compares the outputs."""

import tempfile
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import onnx
from onnxruntime.quantization.quant_utils import add_pre_process_metadata

from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.write_variant import name_of_source, write_variant
from compress.model_folder.model_info import FolderInfo, read_info
from compress.quantize.integer_products import can_any_saturate, saturates, transpose_weights
from compress.runtime import open_predictor
from compress.runtime.onnx_runtime import ONNX_FILE, existing_onnx
from compress.runtime.predictor import Predictor

Quantize = Callable[[onnx.ModelProto, Collection[str]], onnx.ModelProto]
"""From an fp32 graph and the names of the products that stay in fp32 to the INT8 graph; the first is left unchanged."""

LEAST_AGREEMENT = 0.5
"""Below this share of equal decisions the model is broken, not rounded."""
SUSPICIOUS = 0.97
"""Below this share on rows of train a warning is shown; what it costs the task is decided by the gate. Without such
rows, whoever asked for the file compares it with its golden outputs (`check_golden`)."""


def quantize_export(context: BuildContext, quantize: Quantize) -> FolderInfo:
    """Quantize the graph of an exported folder with ``quantize`` and compare its outputs with its source's.

    Raises:
        ModelError: the source is no fp32 ONNX folder, or the result is broken.
    """
    source = context.source
    base, original = read_info(source), onnx.load(existing_onnx(source))
    if base.variant is None or base.variant.precision != "fp32":
        raise ModelError(f"{source} holds no fp32 ONNX export, which INT8 is made from.", hint="compress export first")
    proto = quantize(original, context.settings.get("fp32_products", ()))
    return write_quantized(context, proto, base, open_predictor(source))


def write_quantized(
    context: BuildContext, proto: onnx.ModelProto, base: FolderInfo, reference: Predictor
) -> FolderInfo:
    """Write the folder of an INT8 graph and compare its outputs with those of ``reference``.

    Raises:
        ModelError: the result is broken (not a number, most decisions changed).
    """
    onnx.save(proto, context.work / ONNX_FILE)
    portable = not can_any_saturate(proto)
    guard = not portable and saturates(proto, context.calibration())
    settings = {"portable": portable, "session": {"guard_overflow": guard}}
    context = replace(context, variant=context.variant.model_copy(update=settings))
    inputs = tuple(given.name for given in proto.graph.input)
    return write_rounded(context, base, reference, inputs=inputs)


def write_rounded(
    context: BuildContext, base: FolderInfo, reference: Predictor, *, inputs: tuple[str, ...] = ()
) -> FolderInfo:
    """Complete the folder of an INT8 model that is already written, and compare its decisions with ``reference``'s.

    Raises:
        ModelError: the result is broken (not a number, most decisions changed).
    """
    info, parity = write_variant(context, base, reference, inputs=inputs)
    if (
        parity
        and parity.agreement is not None
        and parity.agreement < (SUSPICIOUS if context.parity else LEAST_AGREEMENT)
    ):
        name, origin = context.variant.name, name_of_source(base)
        message = f"{name} repeats only {parity.agreement:.1%} of the decisions of {origin}, which it is made from."
        if parity.agreement < LEAST_AGREEMENT:
            raise ModelError(message)
        context.console.warn(message)
    return info


def prepare(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of an exported graph that ONNX Runtime's quantizers can read."""
    prepared = copy_of(proto)
    del prepared.graph.value_info[:]  # the exporter's shapes make the quantizers' own inference fail
    add_pre_process_metadata(prepared)  # else they log advice to run it
    transpose_weights(prepared.graph)
    return prepared


def call_quantizer(proto: onnx.ModelProto, quantize: Callable[[onnx.ModelProto, Path], None]) -> onnx.ModelProto:
    """Return the graph that a quantizer of ONNX Runtime writes for ``proto``, which is left unchanged."""
    with tempfile.TemporaryDirectory(prefix="compress-int8-") as folder:
        quantize(copy_of(proto), Path(folder) / ONNX_FILE)
        quantized = onnx.load(Path(folder) / ONNX_FILE)
    del quantized.graph.value_info[:]
    del quantized.metadata_props[:]
    return quantized


def copy_of(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a graph."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy
