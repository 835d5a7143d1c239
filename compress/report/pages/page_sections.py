"""The collapsible parts of a page: each a heading, a note on how to read it, a table and sometimes a chart."""

from collections.abc import Iterator
from dataclasses import dataclass

from compress.report.charts.score_and_speed_charts import reliability_chart
from compress.report.report_schema import Report
from compress.report.retention import quality_on_test
from compress.report.tables import cascade_tables, ledger_tables, quality_tables, size_tables, speed_tables
from compress.select.ledger import Verdict
from compress.tables import Table
from compress.tasks import kind_of

STAR = "A star marks a significant change (p < 0.05); of many parts, some are significant by chance."


@dataclass(frozen=True)
class Block:
    """One part; without rows in its table it is left out."""

    heading: str
    note: str
    table: Table
    chart: str | None = None
    """As SVG; pages of Markdown have none."""
    chart_note: str = ""
    """How to read the chart."""
    open: bool = False


def block_groups(report: Report, title: str, key: str, verdict: Verdict | None) -> dict[str, list[Block]]:
    """Return everything below the ledger of a target by subject; ``key`` is the row that is shown in detail."""
    groups = {
        "Predictions": _quality_blocks(report, title, key, verdict),
        "Speed": _speed_blocks(report, title),
        "Resources": _resource_blocks(report, title),
    }
    filled = {heading: [block for block in blocks if block.table.rows] for heading, blocks in groups.items()}
    return {heading: blocks for heading, blocks in filled.items() if blocks}


def _quality_blocks(report: Report, title: str, key: str, verdict: Verdict | None) -> Iterator[Block]:
    if verdict and verdict.comparisons:
        note = "“Faster” is the model alone; end to end includes tokenizing and decoding."
        yield Block("The winner compared", note, ledger_tables.comparison_table(report, verdict), open=True)
    yield Block(
        "Score retained",
        f"On test. The baseline is {report.floor_name}; above it means (score − baseline) / (teacher − baseline).",
        quality_tables.retention_table(report, title),
    )
    yield Block("The gate, on select", "", ledger_tables.gate_table(report, title))
    yield Block(
        "Cascades",
        "The first model answers the texts of which it is at least so sure, the second the others. The mean counts the"
        " timed texts such that those passed on have their share on select; the median is mostly the first model's.",
        cascade_tables.cascade_table(report, title),
    )
    for cascade, facts in report.cascades.items():
        yield Block(
            f"Thresholds of {cascade}",
            "In the order in which they were tested; the last one that passed is used, whatever a later one would have"
            " given. Mean: of the times of both models' own rows.",
            cascade_tables.threshold_table(report, title, facts),
        )
    yield Block(
        "Layers returned to fp32",
        "Losses are on select, against the same model before quantization. Time: of one row, relative to the file with"
        " every layer in INT8, from a short timing beside it and not from the timing session.",
        ledger_tables.fallback_table(report),
    )
    of_key = f"{key} compared with {report.teacher}, on test." if key != report.teacher else "On test."
    yield Block("Classes", of_key, quality_tables.class_table(report, title, key))
    rows = key if key == report.teacher else f"{key} and {report.teacher}"
    yield _confusion_block(report, title, key)
    yield Block(
        "Calibration and agreement",
        "The calibration error is the mean distance between confidence and accuracy; a perfectly calibrated model stays"
        " below “expected below” on 19 of 20 test sets of this size. The tendency is given where mean confidence and"
        " accuracy differ significantly.",
        quality_tables.calibration_table(report, title),
        chart=reliability_chart(report, title, key),
        chart_note=f"{rows}. On the dashed line confidence equals accuracy; below it, a model is overconfident. The"
        " area of a marker is its share of the predictions.",
    )
    yield Block("By length", f"{of_key} {STAR}", quality_tables.slice_table(report, title, key, None))
    test = quality_on_test(report, key, title)
    for column in test.slices if test else ():
        yield Block(f"By {column}", f"{of_key} {STAR}", quality_tables.slice_table(report, title, key, column))
    yield Block(
        "Changed texts",
        "The score on changed test texts; in brackets the change from the same row's score on the original texts.",
        quality_tables.robustness_table(report, title),
    )
    yield Block(
        f"Largest disagreements of {key} and the teacher",
        "Numbers of test rows, from 0: first those with different decisions, then those whose probabilities differ by"
        " more than 0.05 (scores: by a twentieth of their spread). rows.html in the run's folder, which is never"
        " published, has the texts of those that are wrong.",
        quality_tables.disagreement_table(report, title, key),
    )


def _confusion_block(report: Report, title: str, key: str) -> Block:
    """Return the confusion matrix of a row, or of many classes the most frequent errors."""
    test = quality_on_test(report, key, title)
    confusion = test.confusion if test else None
    unit = confusion.unit if confusion else "rows"
    is_own = key == report.teacher
    if confusion and not confusion.counts:
        heading = "Most frequent confusions"
        note = f"{unit.capitalize()} of test with this true class for which that class was predicted."
        note += "" if is_own else " Of the teacher, those among its own most frequent."
    else:
        heading = "Confusion matrix"
        note = f"{unit.capitalize()} of test by true class (a line each) and predicted class (a column each), of {key}"
        note += "." if is_own else "; in brackets the teacher's where they differ."
    note = f"{note} {kind_of(report.task).confusion_note}".rstrip()
    return Block(heading, note, quality_tables.confusion_table(report, title, key))


def _speed_blocks(report: Report, title: str) -> Iterator[Block]:
    units = speed_tables.timed_units(report)
    yield Block(
        "All timings",
        f"The model alone, {speed_tables.describe_call(report)}, from padded arrays to outputs on the host."
        " ≈ marks an unstable timing, to be read as a rough estimate. The spread is between rounds, not inputs.",
        speed_tables.timing_table(report, title),
    )
    yield Block(
        "End to end, and the first prediction",
        "End to end is from texts to decoded predictions. The first prediction counts from process start, imports"
        " included. Memory is that of the timed process.",
        speed_tables.end_to_end_table(report, title),
    )
    yield Block(
        "Interference",
        "Precision is half the width of the p50's 95 % interval, which the time spent on the row bought. Other load,"
        " stolen (by the hypervisor) and neighbouring cores are shares of cores while the row was timed.",
        speed_tables.interference_table(report, title),
    )
    yield Block(
        "Batch and length",
        f"Batch × word pieces: the p50 of a call, and the speedup over {report.teacher} in the same rounds.",
        speed_tables.grid_table(report, title),
    )
    yield Block(
        "Several callers",
        "Callers that each wait for a prediction before they send the next text, all to one process:"
        f" {units} a second, and the time within which 95 % of the predictions arrive."
        " ≈ marks unstable results: two passes differ by more than 10 %, or other processes interfered.",
        speed_tables.load_table(report, title),
    )
    yield Block(
        "Share of the machine's limits",
        "Operations and weights that a call needs, over its time, relative to the best that any kernel reaches here"
        " with as many threads (see “Limits of this machine”). Weights that stay in the caches are read faster than"
        " memory allows.",
        speed_tables.roofline_table(report, title),
    )


def _resource_blocks(report: Report, title: str) -> Iterator[Block]:
    sources = size_tables.energy_sources(report, title)
    energy = f" {'; '.join(sources)}." if sources else ""
    yield Block(
        "Parameters, operations, bytes and energy",
        f"Operations are those of the encoder's matrix products for one {speed_tables.timed_unit(report)} of so many"
        f" word pieces; all files are those that prediction needs.{energy}",
        size_tables.footprint_table(report, title),
    )
    reasons = size_tables.serving_reasons(report, title)
    missing = f" Not measured: {'; '.join(reasons)}." if reasons else ""
    yield Block(
        "Memory while serving",
        f"Of a fresh process: resident memory after a few predictions, and its peak.{missing}",
        size_tables.serving_table(report, title),
    )
