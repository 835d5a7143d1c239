"""The report of a pretraining as tables and as a page of Markdown."""

from __future__ import annotations

from compress import format_numbers as fmt
from compress.errors import pluralize
from compress.pretrain.report.pretrain_report import HeldOut, PretrainReport, TrainingPart
from compress.tables import Cells, Table, make_table, markdown_table

REPORT_PAGE = "report.md"


def result_table(report: PretrainReport) -> Table:
    """Return the results: of the model, of what it started from, and of what counting predicts."""
    rows, held = list[dict[str, str]](), report.held_out
    if held is not None:
        generates = report.method == "replaced_tokens"
        results = [(f"{report.name}'s generator" if generates else report.name, held.trained)]
        if held.untouched is not None:
            state = "untouched but for its new pieces" if report.new_pieces else "untouched"
            results.insert(0, (f"{report.start}, {state}", held.untouched))
        for name, result in results:
            rows.append({"": name, "loss": result.loss.text, "perplexity": result.perplexity.text})
            if held.trained.pairs is not None:
                rows[-1]["next sentence right"] = result.pairs.text if result.pairs else fmt.ABSENT
        for name, entropy in (("unigram entropy", held.unigram), ("bigram entropy", held.bigram)):
            rows.append({"": name, "loss": entropy.text, "perplexity": entropy.exponential().text})
    return make_table(rows, names=1)


def score_table(report: PretrainReport) -> Table:
    """Return the method's own scores; without rows where it has no others."""
    rows: list[Cells] = [
        {"": score.name, "trained": score.trained.text, "at the start": score.start.text if score.start else fmt.ABSENT}
        for score in report.scores
    ]
    return make_table(rows, names=1)


def tables(report: PretrainReport) -> list[Table]:
    """Return the tables that have rows."""
    return [table for table in (result_table(report), score_table(report)) if table.rows]


def page(report: PretrainReport) -> str:
    """Return the report as Markdown."""
    origin = f"from {report.teacher or report.start}" if report.teacher or report.start else "from scratch"
    parts = (
        f"- {part}: {counts['documents']:,} documents, {counts['sentences']:,} sentences, {counts['pieces']:,} pieces"
        for part, counts in report.corpus.items()
    )
    lines = [
        f"# {report.name}",
        "",
        f"{report.shape}, {report.parameters:,} parameters, {report.vocabulary:,} pieces; "
        f"{report.method.replace('_', ' ')} {origin}.",
        "",
        "## Held out",
        "",
        "With 95 % intervals over documents.",
        "",
        *(text for table in tables(report) for text in (markdown_table(table), "")),
        *_held_out_lines(report.held_out),
        "## Training",
        "",
        *(_training_line(part) for part in report.training),
        _rate_line(report),
        "",
        "## Corpus",
        "",
        *parts,
        "",
    ]
    return "\n".join(lines)


def _held_out_lines(held: HeldOut | None) -> list[str]:
    if held is None:
        return []
    return [
        f"Loss in nats a piece, of {held.pieces:,} masked pieces of {held.sequences:,} sequences,"
        f" {held.documents:,} documents.",
        "",
        f"Below the unigram entropy by {held.below_unigram.text}, below the bigram's by {held.below_bigram.text}.",
        "",
    ]


def _training_line(part: TrainingPart) -> str:
    ending = f"; ended by {part.ending}" if part.ending else ""
    reason = f" ({part.precision_reason})" if part.precision_reason else ""
    return (
        f"- {part.length} pieces: {part.steps:,} steps ({part.passes:.2f} passes), {part.pieces:,} pieces in"
        f" {part.seconds / 60:.1f} minutes, {part.speed:,.0f} pieces per second in {part.precision}{reason}{ending}"
    )


def _rate_line(report: PretrainReport) -> str:
    rate = report.matrix_rate
    if rate is None:
        return "- Share of the matrix rate: not known"
    processes = "" if rate.processes == 1 else f" in each of {rate.processes} processes"
    where = f"{pluralize(rate.threads, 'thread')}{processes}, {report.cpu}"
    return (
        f"- Share of the matrix rate: {rate.share:.0%}, {rate.operations / 1e9:,.1f} GFLOP/s of the"
        f" {rate.fastest / 1e9:,.1f} of the fastest product"
        f" ({rate.kernel}, {rate.size}, timed right after the training; {where})"
    )
