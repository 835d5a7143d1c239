"""INT8 of LiteRT by ai-edge-quantizer: weights with a scale for each column, embeddings for each row.

Activations are quantized when they are computed. It reads the exported file alone, without PyTorch or sample rows.
"""

from compress.environment import require
from compress.environment.libraries import silent_native_code
from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.formats import FORMATS
from compress.model_folder.model_info import FolderInfo, read_info
from compress.quantize.quantize_export import write_rounded
from compress.runtime import open_predictor
from compress.runtime.predictor import first_line

AI_EDGE_ERRORS = (RuntimeError, ValueError, TypeError, LookupError)
"""Errors that the quantizer raises."""


def quantize_ai_edge(context: BuildContext) -> FolderInfo:
    """Quantize the LiteRT export of a model, and compare its outputs with the export's.

    Args:
        context: of the build; its source is the folder of the litert-fp32 variant.

    Raises:
        ModelError: the file cannot be read or quantized, or the result is broken.
    """
    reference, name = open_predictor(context.source), FORMATS["litert"].files[0]
    with silent_native_code():
        quantizer = require("ai_edge_quantizer.quantizer", "litert")
        recipe = require("ai_edge_quantizer.recipe", "litert")
        try:
            quantizing = quantizer.Quantizer(str(context.source / name), recipe.dynamic_wi8_afp32())
            quantizing.quantize(enable_progress_report=False).export_model(str(context.work / name))
        except AI_EDGE_ERRORS as error:
            raise ModelError(f"ai-edge-quantizer cannot quantize {context.source}: {first_line(error)}") from error
    return write_rounded(context, read_info(context.source), reference)
