"""Converts model folders into other formats, one format a file; each export is compared with the model it came from.

The formats and their builders are listed in `compress.formats.FORMATS`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from compress.console import Console
from compress.errors import UsageError, nearest
from compress.export.build_context import BuildContext
from compress.formats import EXPORTS
from compress.model_info import FolderInfo, TaskInfo
from compress.runtime.model_formats import export_variant

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["BuildContext", "build_export", "export_from_model"]


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
        tokenizer: saved as tokenizer.json.
        folder: where to write; created if it does not exist.
        task: the model's task; `compress.open(folder)` needs it to read texts.
        form: a key of `formats.EXPORTS`.
        console: receives progress and warnings.
    """
    from compress.models.load_save import save_model

    if form not in EXPORTS:
        raise UsageError(f"no export format is called '{form}'{nearest(form, EXPORTS)}")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compress-export-") as source:
        save_model(model, tokenizer, Path(source), FolderInfo(step="export", made_by="", task=task))
        _export_through(form, Path(source), target, console or Console("quiet"))
    return target


def build_export(context: BuildContext) -> FolderInfo:
    """Build the export that ``context.variant`` describes; ``context.source`` has the format it is converted from."""
    builder = EXPORTS[context.variant.format].builder
    assert builder is not None  # what `EXPORTS` holds
    info: FolderInfo = resolve_name(builder)(context)
    return info


def _export_through(form: str, source: Path, target: Path, console: Console) -> None:
    """Export a model folder, through the format that ``form`` is converted from."""
    before = EXPORTS[form].source
    with tempfile.TemporaryDirectory(prefix="compress-export-") as between:
        if before is not None:
            _export_through(before, source, Path(between), console)
            source = Path(between)
        build_export(BuildContext(export_variant(form), source, target, console=console))
