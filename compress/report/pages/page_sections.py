"""The folded parts of a page: each a heading, a note that tells how to read it, a table and maybe a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from compress.report.charts.measurement_charts import grid_figure, load_figure, reliability_figure
from compress.report.report_schema import Report, Verdict
from compress.report.retention import quality_on_test
from compress.report.tables import ledger_tables, quality_tables, size_tables, speed_tables, throughput_unit
from compress.report.tables.table_type import Table

STAR = (
    "A star marks a change that chance explains in less than one case in twenty; where many parts are looked at, some"
    " get one by chance."
)

Draw = Callable[[int], str | None]
"""From a width in pixels to a picture."""


@dataclass(frozen=True)
class Block:
    """One part; what it has nothing to show for is left out of the page."""

    heading: str
    note: str
    table: Table
    draw: Draw | None = None
    reading: str = ""
    """How to read the picture."""
    wide: bool = False
    """Whether the picture gains from being drawn wide on a desk."""
    open: bool = False


@dataclass(frozen=True)
class Group:
    """Blocks about one thing."""

    heading: str
    blocks: tuple[Block, ...]


def groups(report: Report, title: str, key: str, verdict: Verdict | None) -> tuple[Group, ...]:
    """All that is told about a target below its ledger; ``key`` is the row that is looked at more closely."""
    found = (
        Group("Answers", _kept(_answers(report, title, key, verdict))),
        Group("Speed", _kept(_speed(report, title, key))),
        Group("What it takes", _kept(_takes(report, title))),
    )
    return tuple(group for group in found if group.blocks)


def _kept(blocks: Iterator[Block]) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block.table.rows)


def _answers(report: Report, title: str, key: str, verdict: Verdict | None) -> Iterator[Block]:
    if verdict and verdict.comparisons:
        note = "“Faster” is the model alone; end to end, reading texts and decoding answers is part of both."
        yield Block("The winner beside the baselines", note, ledger_tables.comparisons(report, verdict), open=True)
    yield Block(
        "What is kept of the teacher's score",
        f"On test. The floor is {report.floor_name}; above it means (score − floor) / (teacher − floor).",
        quality_tables.retention(report, title),
    )
    yield Block("The gate, on select", "", ledger_tables.gates(report, title))
    of_key = f"{key} beside {report.teacher}, on test." if key != report.teacher else "On test."
    yield Block("Each class", of_key, quality_tables.classes(report, title, key))
    yield Block(
        "Confidence and agreement",
        "The calibration error is the mean distance between how sure a model says it is and how often it is right;"
        " “by chance below” is what a perfectly calibrated one stays below on 19 of 20 test sets of this size."
        " It leans where its confidence is above or below its accuracy on average, by more than chance.",
        quality_tables.trust(report, title),
        draw=partial(reliability_figure, report, title, key),
        reading=f"{_pair(report, key)}. On the dashed line a model is right as often as it says; below it, it is too"
        " sure. A mark's area is its share of the answers.",
    )
    yield Block("By length", f"{of_key} {STAR}", quality_tables.slices(report, title, key, None))
    test = quality_on_test(report, key, title)
    for column in test.slices if test else ():
        table = quality_tables.slices(report, title, key, column)
        yield Block(f"By {column}", f"{of_key} {STAR}", table)
    yield Block(
        "Changed texts",
        "The score on test texts that were changed; in brackets the change against the same row's score on the texts as"
        " they are.",
        quality_tables.robustness(report, title),
    )
    yield Block(
        f"Where {key} and the teacher are furthest apart",
        "Numbers of test rows, from 0: first those that are decided otherwise, then those whose probabilities are apart"
        " by more than 0.05 (scores: by a twentieth of their spread). Their texts are in disagreements.jsonl in the"
        " run's folder, which is never published.",
        quality_tables.disagreements(report, title, key),
    )


def _pair(report: Report, key: str) -> str:
    return key if key == report.teacher else f"{key} and {report.teacher}"


def _speed(report: Report, title: str, key: str) -> Iterator[Block]:
    yield Block(
        "All timings",
        f"The model alone, {throughput_unit.describe_call(report)}, from padded arrays to outputs on the host."
        " ≈ marks a timing that the session calls unstable: a hint, no more. The spread is what the machine did from"
        " round to round, not the inputs.",
        speed_tables.timings(report, title),
    )
    yield Block(
        "End to end, and the first answer",
        "End to end is from texts to decoded answers. The first answer counts from the start of the process, imports"
        " included. Memory is that of the process that was timed.",
        speed_tables.whole(report, title),
    )
    yield Block(
        "How quiet the machine was",
        "Precision is half the width of the p50's 95 % interval: what the time spent on the row bought. Other load,"
        " stolen (by the hypervisor) and cores beside are shares of cores during the row's own turns.",
        speed_tables.noise(report, title),
    )
    yield Block(
        "Batch and length",
        f"Batch × word pieces: the p50 of a call, and how many times faster than {report.teacher} in the same rounds.",
        speed_tables.grid(report, title),
        draw=partial(grid_figure, report, title, key),
        reading=f"{key} against {report.teacher}: times faster, and the p50 of a call.",
    )
    yield Block(
        "Several callers",
        "Callers that each wait for an answer before they ask again, all at one process:"
        f" {throughput_unit.timed_units(report)} a second, and the wait that 95 % of the answers stay below."
        " ≈ marks what the session calls unstable: its two laps differ by more than 10 %, or other work was there.",
        speed_tables.under_load(report, title),
        draw=partial(load_figure, report, title),
        reading="Right and down is better; the numbers are callers.",
        wide=True,
    )
    yield Block(
        "Share of the machine's limits",
        "Operations and weights that a call needs, over its time, against the best that any kernel reaches here with"
        " as many threads (below, under “How this came about”). Weights that stay in the caches are read faster than"
        " memory allows.",
        speed_tables.shares(report, title),
    )


def _takes(report: Report, title: str) -> Iterator[Block]:
    sources = size_tables.energy_sources(report, title)
    energy = f" {'; '.join(sources)}." if sources else ""
    yield Block(
        "Parameters, operations, bytes and energy",
        f"Operations are those of the encoder's matrix products for one {throughput_unit.timed_unit(report)} of so many"
        f" word pieces; all files are those that predicting needs.{energy}",
        size_tables.footprint(report, title),
    )
    reasons = size_tables.serving_reasons(report, title)
    missing = f" Not measured: {'; '.join(reasons)}." if reasons else ""
    yield Block(
        "Memory while serving",
        "Of a fresh process, everything in it included: what stays once it has answered a few times, and the worst"
        f" moment.{missing}",
        size_tables.serving(report, title),
    )
