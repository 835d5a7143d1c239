"""`compress export`: one model folder into a variant's folder, outside any run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from compress.atomic_write import atomic_copy_folder
from compress.console import Console
from compress.errors import UsageError
from compress.model_info import FolderInfo
from compress.models.fetch import fetch
from compress.variants import variants_for


def export_folder(model: str, to: Path, form: str, quantizer: str | None, *, console: Console) -> FolderInfo:
    """Export a model (a folder, card or hub id) into ``to``, and quantize it where a quantizer is named."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UsageError(f"{to} is there already and is not empty.", hint="name another folder, or remove it first")
    source = fetch(model)
    with tempfile.TemporaryDirectory(prefix="compress-export-") as scratch:
        info: FolderInfo | None = None
        for variant in variants_for([form], quantizer, []):
            work = Path(scratch) / variant.name
            work.mkdir()
            info = variant.make(source, work, console=console)
            source = work
        assert info is not None
        atomic_copy_folder(source, to)
    return info
