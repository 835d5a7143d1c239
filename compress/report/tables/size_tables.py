"""What every variant takes: parameters, operations, bytes, memory while serving, and energy."""

from __future__ import annotations

from compress.measure.resources.footprint import Footprint
from compress.measure.resources.serving_memory import ServingMemory
from compress.report.format_numbers import ABSENT, format_count, format_energy, format_flop, format_size
from compress.report.report_schema import LedgerRow, Report, TargetResult
from compress.report.tables.speed_tables import places
from compress.report.tables.table_type import Cells, Table
from compress.report.tables.throughput_unit import timed_unit


def footprint(report: Report, title: str) -> Table:
    """Parameters with and without embeddings, operations and energy of one example (mostly a row), and bytes."""
    lengths = sorted({length for row, _ in places(report, title) if row.footprint for length in row.footprint.flops_at})
    operations = tuple(f"one {timed_unit(report)} of {length}" for length in lengths)
    energy = f"energy a {timed_unit(report)}"
    columns = (
        "model",
        "variant",
        "parameters",
        "without embeddings",
        *operations,
        "weights",
        "all files",
        energy,
    )

    def cells(row: LedgerRow, place: TargetResult) -> Cells:
        size: Footprint | None = row.footprint
        return {
            "model": row.model,
            "variant": row.variant.name,
            "parameters": format_count(size.parameters if size else None),
            "without embeddings": format_count(size.encoder_parameters if size else None),
            **{
                name: format_flop(size.flops_at.get(length) if size else None)
                for name, length in zip(operations, lengths, strict=True)
            },
            "weights": format_size(size.bytes_weights if size else None),
            "all files": format_size(size.bytes_total if size else None),
            energy: _energy(place),
        }

    return Table(columns, tuple(cells(row, place) for row, place in places(report, title)), frozenset(columns[2:]))


def energy_sources(report: Report, title: str) -> list[str]:
    """What energy was read from, or why it was not, as sentences: each once."""
    told = dict.fromkeys(place.latency.energy for _, place in places(report, title) if place.latency.timed)
    return [f"Energy was {said if said.startswith('not measured') else f'read from {said}'}" for said in told if said]


def serving(report: Report, title: str) -> Table:
    """Memory of a process that serves, one by one and in batches."""
    found = [(row, place.serving) for row, place in places(report, title) if place.serving]
    batches = sorted({each.batch for _, given in found for each in given})
    columns = ("model", "variant", *(name for batch in batches for name in _memory_columns(batch)))
    device = any(each.device is not None for _, given in found for each in given)
    columns += tuple(f"{_batch_name(batch)}, on the device" for batch in batches) if device else ()
    rows = tuple(
        {
            **dict.fromkeys(columns, ABSENT),
            "model": row.model,
            "variant": row.variant.name,
            **{name: said for each in given for name, said in _memory_cells(each).items()},
        }
        for row, given in found
    )
    return Table(columns, rows, frozenset(columns[2:]))


def serving_reasons(report: Report, title: str) -> list[str]:
    """Why memory is missing, where it is: `student/torch-fp32, batch 32: …`."""
    return [
        f"{row.key}, batch {each.batch}: {each.reason}"
        for row, place in places(report, title)
        for each in place.serving
        if each.reason
    ]


def _memory_columns(batch: int) -> tuple[str, str]:
    return f"{_batch_name(batch)}, resident", f"{_batch_name(batch)}, peak"


def _memory_cells(each: ServingMemory) -> dict[str, str]:
    resident, peak = _memory_columns(each.batch)
    return {
        resident: format_size(each.resident),
        peak: format_size(each.peak),
        f"{_batch_name(each.batch)}, on the device": format_size(each.device),
    }


def _batch_name(batch: int) -> str:
    return "one by one" if batch == 1 else f"batches of {batch}"


def _energy(place: TargetResult) -> str:
    if place.latency.joules_per_row is not None:
        return format_energy(place.latency.joules_per_row)
    return "not measured" if place.latency.timed else ABSENT
