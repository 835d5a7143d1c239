"""`compress export`: exports a model folder outside any run, or checks an existing export."""

from __future__ import annotations

import tempfile
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from compress.console import Console
from compress.errors import UsageError
from compress.export import BuildContext
from compress.export.build_context import Batches
from compress.export.calibration_texts import calibration_batches
from compress.export.parity import Parity
from compress.export.parity_check import check_parity
from compress.model_info import FolderInfo, find_info
from compress.models.fetch import fetch
from compress.quantize import chosen_methods
from compress.runtime.predict_command import read_lines
from compress.storage.atomic_write import atomic_copy_folder
from compress.variants import variants_for


def export_folder(
    model: str, to: Path, form: str, quantizer: str | None, *, console: Console, calibration: Path | None = None
) -> FolderInfo:
    """Export a model (a folder, card or hub id) into ``to``, quantize it if requested, and tune it for this machine.

    ``calibration``: a file of texts from which static methods take their ranges.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UsageError(f"{to} already exists and is not empty.", hint="name another folder, or remove it first")
    methods = chosen_methods([quantizer], [form])[:1] if quantizer else ()
    source = fetch(model)
    sample = _calibration(calibration, source) if calibration else ()
    with tempfile.TemporaryDirectory(prefix="compress-export-") as scratch:
        folders: dict[str | None, Path] = {None: source}
        for variant in variants_for([form], methods, []):
            work = folders[variant.name] = Path(scratch) / variant.name
            work.mkdir()
            parent = folders[variant.needs]
            context = BuildContext(variant.info, parent, work, console=console, calibration=lambda: sample)
            info = variant.make(context)
        if variant.tuner is not None:
            resolve_name(variant.tuner)(work, work)
        atomic_copy_folder(work, to)
    return info


def _calibration(file: Path, source: Path) -> Batches:
    info = find_info(source)
    return calibration_batches(read_lines(file, []), source, info.task if info else None)


def check_and_show(model: str, folder: Path, console: Console) -> None:
    """Compare the export in ``folder`` with a model (a folder, card or hub id), show the differences, and judge them.

    Raises:
        ParityMissed: they exceed the limits of the export's precision.
    """
    check = check_parity(fetch(model), folder)
    groups = {**check.groups, "all": check.total}
    if console.format == "json":
        inputs = {name: parity.record() for name, parity in groups.items()}
        console.data({"variant": check.variant.name, "limit": check.limit, "misses": check.misses, "inputs": inputs})
    else:
        console.table([parity_row(name, parity) for name, parity in groups.items()])
    check.raise_for_misses(folder)
    console.note(f"{folder} ({check.variant.name}) repeats PyTorch: {check.total}")


def parity_row(inputs: str, parity: Parity) -> dict[str, Any]:
    """Return the differences on a group of golden inputs as a row of the table."""
    return {
        "inputs": inputs,
        "rows": parity.rows,
        "largest difference": parity.max_abs_difference,
        "largest output": parity.largest_output,
        "equal decisions": None if parity.agreement is None else f"{parity.agreement:.1%}",
    }
