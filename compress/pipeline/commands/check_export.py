"""`compress export --check`: compares an existing export with PyTorch, and writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compress.console import Console
from compress.export.comparison.parity import Parity
from compress.export.comparison.parity_check import check_parity
from compress.models.fetch import fetch


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
    console.note(check.verdict(folder))


def parity_row(inputs: str, parity: Parity) -> dict[str, Any]:
    """Return the differences on a group of golden inputs as a row of the table."""
    return {
        "inputs": inputs,
        "rows": parity.rows,
        "largest difference": parity.max_abs_difference,
        "largest output": parity.largest_output,
        "equal decisions": None if parity.agreement is None else f"{parity.agreement:.1%}",
    }
