"""How many heads and FFN neurons pruning kept of each layer, and their share of its importance."""

from __future__ import annotations

from compress.report import format_numbers as fmt
from compress.report.pruned_units import PrunedStructure, PrunedUnits
from compress.report.tables.table_type import Cells, Table, make_table


def pruning_table(structure: PrunedStructure) -> Table:
    """Return a row a layer."""
    rows: list[Cells] = [
        {
            "layer": str(number),
            "heads": _count(heads),
            "their importance": _share(heads),
            "FFN neurons": _count(ffn),
            "importance of the neurons": _share(ffn),
        }
        for number, (heads, ffn) in enumerate(zip(structure.heads, structure.ffn, strict=True))
    ]
    return make_table(rows, names=1)


def _count(units: PrunedUnits) -> str:
    return f"{units.kept:,}" if units.total is None else f"{units.kept:,} of {units.total:,}"


def _share(units: PrunedUnits) -> str:
    return fmt.ABSENT if units.importance is None else fmt.percent(units.importance)
