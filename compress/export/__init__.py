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
from compress.export.build_context import BuildContext, named_folders
from compress.formats import EXPORTS
from compress.model_folder.model_info import FolderInfo, TaskInfo
from compress.runtime.model_formats import export_variant
from compress.storage.atomic_write import copy_content

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["BuildContext", "export_from_model"]


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
    formats = [form]
    while (source := EXPORTS[formats[0]].source) is not None:
        formats.insert(0, source)
    with tempfile.TemporaryDirectory(prefix="compress-export-") as scratch, named_folders({Path(scratch): str(folder)}):
        before = Path(scratch) / "model"
        before.mkdir()
        save_model(model, tokenizer, before, FolderInfo(step="export", made_by="", task=task))
        for name in formats:
            work = Path(scratch) / name
            work.mkdir()
            build = resolve_name(str(EXPORTS[name].builder))
            build(BuildContext(export_variant(name), before, work, console=console or Console("quiet")))
            before = work
        copy_content(before, Path(folder))
    return Path(folder)
