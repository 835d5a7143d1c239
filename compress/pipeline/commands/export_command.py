"""`compress export`: exports a model folder outside any run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from pkgutil import resolve_name

from compress.console import Console
from compress.errors import UsageError
from compress.export import BuildContext
from compress.model_info import FolderInfo
from compress.models.fetch import fetch
from compress.quantize import chosen_methods
from compress.storage.atomic_write import atomic_copy_folder
from compress.variants import variants_for


def export_folder(model: str, to: Path, form: str, quantizer: str | None, *, console: Console) -> FolderInfo:
    """Export a model (a folder, card or hub id) into ``to``, quantize it if requested, and tune it for this machine."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UsageError(f"{to} already exists and is not empty.", hint="name another folder, or remove it first")
    methods = chosen_methods([quantizer], [form])[:1] if quantizer else ()
    source = fetch(model)
    with tempfile.TemporaryDirectory(prefix="compress-export-") as scratch:
        folders: dict[str | None, Path] = {None: source}
        for variant in variants_for([form], methods, []):
            work = folders[variant.name] = Path(scratch) / variant.name
            work.mkdir()
            info = variant.make(BuildContext(variant.info, folders[variant.needs], work, console=console))
        if variant.tuner is not None:
            resolve_name(variant.tuner)(work, work)
        atomic_copy_folder(work, to)
    return info
