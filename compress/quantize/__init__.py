"""Quantizes exported models to INT8, one method a file; each result is compared with the model it came from.

Adding a method is one file with a builder, one record in `QUANTIZERS`, a test and a row in the docs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compress.console import Console
from compress.errors import UsageError, nearest
from compress.export.build_context import BuildContext
from compress.export.variant_record import Variant
from compress.formats import FORMATS
from compress.model_info import read_info

QUANTIZERS: Mapping[str, Mapping[str, Variant]] = {
    "int8": {
        "onnx": Variant(
            name="onnx-int8",
            format="onnx",
            precision="int8",
            method="dynamic",
            runtime="onnxruntime",
            libraries=FORMATS["onnx"].minimum,
            batch_sensitive=True,
            devices=("cpu",),
            needs="onnx-fp32",
            builder="compress.quantize.int8_dynamic:quantize_int8_dynamic",
            graph_builder="compress.quantize.int8_dynamic:quantize_int8_dynamic_model",
            quantizer="int8",
            # On CUDA every product would travel to the CPU and back.
            absent={"cuda": "ONNX Runtime has no kernels for dynamic INT8 on CUDA"},
            build_modules={"onnx": "train"},
        )
    }
}
"""By the name in a recipe's `quantize` and by the export format that is quantized: the variant it makes."""


def quantize_folder(
    exported: str | Path, folder: str | Path, *, method: str = "int8", console: Console | None = None
) -> Path:
    """Quantize an exported folder into another one: ``quantize_folder("model-onnx", "model-int8")``.

    Args:
        exported: a folder written by an export.
        folder: where to write; created if it does not exist.
        method: a key of `QUANTIZERS`.
        console: receives progress and warnings.
    """
    if method not in QUANTIZERS:
        raise UsageError(f"no quantizer is called '{method}'{nearest(method, QUANTIZERS)}")
    variant = read_info(Path(exported)).variant
    if variant is None or variant.format not in QUANTIZERS[method]:
        readable = ", ".join(QUANTIZERS[method])
        raise UsageError(f"{method} quantizes an exported model ({readable}), and {exported} holds none.")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    quantized = QUANTIZERS[method][variant.format]
    quantized.make(BuildContext(quantized.info, Path(exported), target, console=console or Console("quiet")))
    return target
