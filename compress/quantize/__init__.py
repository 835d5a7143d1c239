"""Exported models into INT8, one method a file; each result is compared with the model it came from.

Adding a method is one file with one building function, one line in `QUANTIZERS` and one in the table of variants.
"""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

from compress.console import Console
from compress.errors import UsageError, nearest
from compress.model_info import VariantInfo, read_info

QUANTIZERS = {"int8": {"onnx": "compress.quantize.int8_dynamic:quantize_int8_dynamic"}}
"""What a recipe's `quantize` may name -> for each export format the function that builds it, imported when called."""

ONNX_INT8 = VariantInfo(name="onnx-int8", format="onnx", precision="int8", method="dynamic", runtime="onnxruntime")


def quantize_folder(
    exported: str | Path, folder: str | Path, *, method: str = "int8", console: Console | None = None
) -> Path:
    """Quantize an exported folder into another one: ``quantize_folder("model-onnx", "model-int8")``.

    Args:
        exported: a folder that an export wrote.
        folder: where to write; made where it is not there.
        method: a key of `QUANTIZERS`.
        console: where the outcome is told.
    """
    if method not in QUANTIZERS:
        raise UsageError(f"no quantizer is called '{method}'{nearest(method, QUANTIZERS)}")
    variant = read_info(Path(exported)).variant
    if variant is None or variant.format not in QUANTIZERS[method]:
        able = ", ".join(QUANTIZERS[method])
        raise UsageError(f"{method} quantizes an exported model ({able}), and {exported} holds none.")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    resolve_name(QUANTIZERS[method][variant.format])(Path(exported), target, console=console)
    return target
