"""Model folders into other formats, one format a file; each export is compared with the model it came from.

Adding a format is one file with one building function, one line in `FORMATS` and one in the table of variants.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from compress.console import Console
from compress.errors import UsageError, nearest
from compress.model_info import FolderInfo, TaskInfo, VariantInfo

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FORMATS = {
    "onnx": "compress.export.onnx:export_onnx",
    "openvino": "compress.export.openvino:export_openvino",
}
"""What a recipe's `export` may name -> the function that builds it, imported when it is called."""

THROUGH = {"openvino": "onnx"}
"""Formats that are made from another one, which is built before them whether it was asked for or not."""

ONNX_FP32 = VariantInfo(name="onnx-fp32", format="onnx", precision="fp32", runtime="onnxruntime")
OPENVINO_FP32 = VariantInfo(name="openvino-fp32", format="openvino", precision="fp32", runtime="openvino")


def export_from_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    task: TaskInfo | None = None,
    form: str = "onnx",
    console: Console | None = None,
) -> Path:
    """Export a model in memory into ``folder``, which then predicts by itself.

    Args:
        model: any encoder of a known family, with or without a head.
        tokenizer: goes along as tokenizer.json.
        folder: where to write; made where it is not there.
        task: what the model answers; `compress.open(folder)` needs it to read texts.
        form: a key of `FORMATS`.
        console: where the outcome is told.
    """
    from compress.models.load_save import save_model

    if form not in FORMATS:
        raise UsageError(f"no export format is called '{form}'{nearest(form, FORMATS)}")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compress-export-") as source:
        save_model(model, tokenizer, Path(source), FolderInfo(step="export", made_by="", task=task))
        _build(form, Path(source), target, console)
    return target


def _build(form: str, source: Path, target: Path, console: Console | None) -> None:
    """Build a format from a model folder, through the one that it is made from."""
    if form not in THROUGH:
        resolve_name(FORMATS[form])(source, target, console=console)
        return
    with tempfile.TemporaryDirectory(prefix="compress-export-") as between:
        _build(THROUGH[form], source, Path(between), console)
        resolve_name(FORMATS[form])(Path(between), target, console=console)
