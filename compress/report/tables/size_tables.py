"""Tables of resources: parameters, operations, bytes, energy, and memory while serving."""

from compress import format_numbers as fmt
from compress.report.report_schema import Report
from compress.report.tables.speed_tables import timed_unit
from compress.select.ledger import TargetResult
from compress.tables import Table, make_table


def footprint_table(report: Report, title: str) -> Table:
    """Parameters with and without embeddings, operations and energy of one example, and bytes of every variant."""
    results, unit = report.rows_at(title), timed_unit(report)
    lengths = sorted({length for row, _ in results if row.footprint for length in row.footprint.flops_at})
    rows = []
    for row, result in results:
        size = row.footprint
        flops = {f"one {unit} of {length}": size.flops_at.get(length) if size else None for length in lengths}
        rows.append(
            {
                **row.names,
                "parameters": fmt.count(size.parameters if size else None),
                "without embeddings": fmt.count(size.encoder_parameters if size else None),
                **{name: fmt.flop(count) for name, count in flops.items()},
                "weights": fmt.size(size.bytes_weights if size else None),
                "all files": fmt.size(size.bytes_total if size else None),
                f"energy a {unit}": _energy(result),
            }
        )
    return make_table(rows)


def vocabulary_table(report: Report) -> Table:
    """Word pieces and positions of models whose vocabulary was pruned, and the rows that are tokenized differently."""
    rows = []
    for model, info in report.vocabularies.items():
        positions = f"{info.positions_before} → {info.positions}" if info.positions else fmt.ABSENT
        changed = {f"{role} tokenized differently": fmt.percent(share) for role, share in info.changed.items()}
        pieces = f"{info.pieces_before:,} → {info.pieces:,}"
        rows.append({"model": model, "kept": info.rule, "pieces": pieces, "positions": positions, **changed})
    return make_table(rows)


def _energy(result: TargetResult) -> str:
    if result.latency.joules_per_row is not None:
        return fmt.energy(result.latency.joules_per_row)
    return "not measured" if result.latency.timed else fmt.ABSENT


def energy_sources(report: Report, title: str) -> list[str]:
    """The sensors that energy was read from, or why it was not measured, as sentences."""
    sources = dict.fromkeys(result.latency.energy for _, result in report.rows_at(title) if result.latency.timed)
    return [
        f"Energy was {text if text.startswith('not measured') else f'read from {text}'}" for text in sources if text
    ]


def serving_table(report: Report, title: str) -> Table:
    """Memory of a process that serves, one by one and in batches."""
    results = [(row, result.serving) for row, result in report.rows_at(title) if result.serving]
    batches = sorted({memory.batch for _, serving in results for memory in serving})
    on_device = any(memory.device is not None for _, serving in results for memory in serving)
    rows = []
    for row, serving in results:
        cells = row.names
        by_batch = {memory.batch: memory for memory in serving}
        for batch in batches:
            memory, name = by_batch.get(batch), "one by one" if batch == 1 else f"batches of {batch}"
            cells[f"{name}, resident"] = fmt.size(memory.resident if memory else None)
            cells[f"{name}, peak"] = fmt.size(memory.peak if memory else None)
            if on_device:
                cells[f"{name}, on the device"] = fmt.size(memory.device if memory else None)
        rows.append(cells)
    return make_table(rows)


def serving_reasons(report: Report, title: str) -> list[str]:
    """Why memory was not measured: `student/torch-fp32, batch 32: …`."""
    return [
        f"{row.key}, batch {memory.batch}: {memory.reason}"
        for row, result in report.rows_at(title)
        for memory in result.serving
        if memory.reason
    ]
