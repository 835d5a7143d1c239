"""The page of a probe: layers by tasks, heads by patterns, what changed, with all numbers in tables."""

from collections.abc import Iterator
from pathlib import Path

from compress.errors import CompressError
from compress.probe.probe_result import HeadPatterns, ProbeReport, change_tables, layer_tables, score_tables
from compress.report.charts.heat_maps import Matrix
from compress.report.charts.heat_maps import matrix_chart as draw
from compress.report.charts.score_and_speed_charts import NARROW, WIDE
from compress.report.pages.render import page_environment
from compress.report.report_schema import PROBE_FILE, PROBE_PAGE
from compress.storage.atomic_write import atomic_write

LAYER_CHOICE = (
    "Students with the layers at which a probe's score rises most, beside students with evenly spread ones: +0.81 "
    "points, standard error 0.42, in nine pairs; +1.5 on slots, better with each of three seeds; within chance on "
    "SST-2 and MRPC."
)
"""What `benchmarks/probed_layers.py` found."""
MOST_COMPARED = 96
"""Heads of a model whose similarity is drawn."""


def probe_page(report: ProbeReport) -> str:
    """Return the page as one HTML file without scripts."""
    page = page_environment(escape=True).get_template("probe.html.j2")
    return page.render(
        report=report,
        layer_choice=LAYER_CHOICE,
        scores=list(score_maps(report)),
        heads=[(facts.model, list(head_maps(facts.heads))) for facts in report.models if facts.heads],
        changes=list(zip(change_maps(report), change_tables(report), strict=True)),
        score_tables=list(score_tables(report)),
        layer_tables=list(layer_tables(report)),
        draw=draw,
        widths={"wide": WIDE, "narrow": NARROW},
    )


def write_probe(folder: Path, report: ProbeReport) -> None:
    """Write probe.json and probe.html."""
    try:
        atomic_write(folder / PROBE_FILE, report.model_dump_json(indent=1) + "\n")
        atomic_write(folder / PROBE_PAGE, probe_page(report))
    except OSError as error:
        raise CompressError(f"{folder} cannot be written: {error.strerror}.") from error


def score_maps(report: ProbeReport) -> Iterator[Matrix]:
    """Yield a map of layers by tasks for each model, shaded within each task from its lowest score to its highest."""
    for facts in report.models:
        tasks = [each for each in report.tasks if each.model == facts.model]
        if not tasks:
            continue
        columns = [[layer.score.value for layer in task.layers] for task in tasks]
        rows = [layer.layer for layer in tasks[0].layers]
        shades = [[(value - min(each)) / ((max(each) - min(each)) or 1.0) for value in each] for each in columns]
        best = {(rows.index(task.best), number) for number, task in enumerate(tasks)}
        yield Matrix(
            title=facts.model,
            rows=rows,
            columns=[task.task for task in tasks],
            values=[[100 * each[row] for each in columns] for row in range(len(rows))],
            shades=[[each[row] for each in shades] for row in range(len(rows))],
            framed=frozenset(best),
        )


def head_maps(heads: HeadPatterns) -> Iterator[Matrix]:
    """Yield a map of layers by heads for each pattern, and one of how alike heads are."""
    most = max(heads.per_layer)
    rows = [str(layer) for layer in range(len(heads.per_layer))]
    starts = [sum(heads.per_layer[:layer]) for layer in range(len(rows))]
    for number, pattern in enumerate(heads.patterns):
        yield Matrix(
            title=f"share of attention: {pattern}",
            rows=rows,
            columns=[str(head) for head in range(most)],
            values=[
                [heads.shares[start + head][number] if head < count else None for head in range(most)]
                for start, count in zip(starts, heads.per_layer, strict=True)
            ],
        )
    for title, numbers in (("mean distance in tokens", heads.distance), ("entropy in bits", heads.entropy)):
        largest = max(numbers) or 1.0
        values = [
            [numbers[start + head] if head < count else None for head in range(most)]
            for start, count in zip(starts, heads.per_layer, strict=True)
        ]
        shades = [[None if value is None else value / largest for value in row] for row in values]
        yield Matrix(title, rows, [str(head) for head in range(most)], values, shades)
    if len(heads.divergence) <= MOST_COMPARED:
        names = [heads.name_of(head) for head in range(len(heads.divergence))]
        yield Matrix(
            title="how alike heads are: 1 minus the Jensen-Shannon divergence in bits",
            rows=names,
            columns=names,
            values=[
                [1 - value if other < head else None for other, value in enumerate(row)]
                for head, row in enumerate(heads.divergence)
            ],
        )


def change_maps(report: ProbeReport) -> Iterator[Matrix]:
    """Yield CKA of each two models: the later one's layers down."""
    for change in report.changes:
        names = [each.layer for each in change.layers]
        most = {(row, change.earlier_layers.index(each.most_like)) for row, each in enumerate(change.layers)}
        yield Matrix(
            title=f"CKA: {change.later} (down) and {change.earlier} (across)",
            rows=names,
            columns=["emb." if name == "embeddings" else name for name in change.earlier_layers],
            values=change.cka,
            framed=frozenset(most),
        )
