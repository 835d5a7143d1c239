"""Converts an ONNX file to ONNX Runtime's own format, which phones load without the ONNX parser and the optimizers."""

import tempfile
from dataclasses import replace
from pathlib import Path

import onnxruntime as ort

from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.comparison.parity import TOLERANCE
from compress.export.write_variant import operators, write_variant
from compress.formats import FORMATS
from compress.model_folder.model_info import FolderInfo, read_info
from compress.runtime import open_predictor
from compress.runtime.onnx_runtime import GUARD, ONNX_FILE, ORT_ERRORS, PROVIDERS, SILENT, existing_onnx
from compress.runtime.predictor import first_line

NOT_PORTABLE = ("SkipLayerNormFusion", "NchwcTransformer")
"""Optimizers that are left out. What the file holds is final, so it cannot be chosen by timing as for ONNX: the first
costs 10 to 30 % of a small encoder on the x86 processors that were measured, and the second arranges memory for the
processor that converts."""


def export_ort(context: BuildContext) -> FolderInfo:
    """Save the optimized graph of an ONNX file as model.ort, and compare its outputs with the ONNX file's.

    Whether every CPU computes an INT8 file right is taken over from its source. One that needs the overflow guard is
    converted with it, because no optimizer can insert exact kernels when the file is read; but ONNX Runtime inserts
    them on some processors only, so that this makes no file portable.

    Args:
        context: of the build; its source is an exported or quantized ONNX folder.

    Raises:
        ModelError: the graph cannot be converted, or its outputs differ by more than rounding.
    """
    graph, base = existing_onnx(context.source), read_info(context.source)
    original = base.variant
    assert original is not None  # the source is a variant itself
    guarded = original.precision == "int8" and original.session.get("guard_overflow", True)
    with tempfile.TemporaryDirectory(prefix="compress-ort-") as scratch:
        optimized = Path(scratch) / ONNX_FILE
        try:
            _optimize(graph, context.work / FORMATS["ort"].files[0], "ORT", guarded=guarded)
            # Only an ONNX file shows which operators the optimizers put in.
            _optimize(graph, optimized, "ONNX", guarded=guarded)
        except ORT_ERRORS as error:
            raise ModelError(f"{graph} cannot be converted to the ORT format: {first_line(error)}") from error
        used, _ = operators(optimized)
    kept = original.model_dump(include={"method", "batch_sensitive", "fp32_layers", "portable"})
    context = replace(context, variant=context.variant.model_copy(update={**kept, "operators": used}))
    # With the same optimizers: in INT8 the rounding of others could move an activation to the next integer.
    alike = original.model_copy(update={"session": {"disabled_optimizers": list(NOT_PORTABLE)}})
    reference = open_predictor(context.source, variant=alike)
    return write_variant(context, base, reference, tolerance=TOLERANCE)[0]


def _optimize(graph: Path, to: Path, form: str, *, guarded: bool) -> None:
    """Write a graph as ONNX Runtime optimizes it, in the format ``form``."""
    options = ort.SessionOptions()
    # The highest level whose result does not depend on the processor.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(to)
    options.add_session_config_entry("session.save_model_format", form)
    options.log_severity_level = SILENT
    if guarded:
        options.add_session_config_entry(GUARD, "1")
    ort.InferenceSession(str(graph), options, list(PROVIDERS["cpu"]), disabled_optimizers=list(NOT_PORTABLE))
