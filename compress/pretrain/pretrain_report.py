"""The report of a pretraining (JSON, tables, a page): what it predicts of held-out documents, beside counting alone."""

from pathlib import Path
from typing import Annotated

from pydantic import ValidationError

from compress import format_numbers as fmt
from compress.errors import pluralize
from compress.pretrain.scores.clustered_mean import Estimate
from compress.storage.stored_info import Info, up_to
from compress.tables import Cells, Table, make_table, markdown_table

REPORT_JSON = "report.json"


class HeldOutResult(Info):
    """How well one model predicts masked pieces, and pairs, of held-out documents."""

    loss: Estimate
    """Of masked pieces, in nats a piece."""
    perplexity: Estimate
    pairs: Estimate | None = None
    """The share of pairs that it classifies right; None without a head for them."""


class HeldOut(Info):
    """What was scored, and by which models; all on the same masked pieces."""

    documents: int
    sequences: int
    pieces: int
    """Masked ones."""
    trained: HeldOutResult
    untouched: HeldOutResult | None = None
    """The model that training went on from; None for a new one."""
    unigram: Estimate
    """The entropy of pieces by their frequency in the training part."""
    bigram: Estimate
    """The same, given the piece before each."""
    below_unigram: Estimate
    """Unigram entropy less the model's loss, piece by piece."""
    below_bigram: Estimate


class MethodScore(Info):
    """What a method trains for, beside the prediction of masked pieces."""

    name: str
    trained: Estimate
    start: Estimate | None = None
    """Of the model before the training; None where it means nothing."""


class TrainingPart(Info):
    """One part of the training: on short sequences, or on long ones."""

    length: int
    steps: int
    passes: float
    """Over the texts."""
    pieces: int
    """Padding included."""
    seconds: float
    """Evaluations not included."""
    precision: str
    precision_reason: str | None = None
    """Why it is that one where the recipe left it to `auto`."""
    ending: str | None = None

    @property
    def speed(self) -> float:
        """Pieces per second."""
        return self.pieces / self.seconds if self.seconds else 0.0


class MatrixRate(Info):
    """How fast the training was beside the fastest matrix product of its machine."""

    operations: float
    """Of all matrix products of the training, per second."""
    fastest: float
    """Of the fastest product, per second; it was timed right after the training."""
    kernel: str
    size: str
    """Of that product: rows x inner x columns."""
    threads: int
    processes: int

    @property
    def share(self) -> float:
        """Of the fastest product's rate; the rest could be gained, or is other work than matrix products."""
        return self.operations / self.fastest


class PretrainReport(Info):
    """The content of report.json."""

    schema_version: Annotated[int, up_to(1)] = 1
    name: str
    made_by: str
    method: str
    start: str | None
    """What training went on from; None for a new model."""
    new_pieces: bool = False
    """Whether pieces were added to it: the untouched model has them, too, so that both predict the same pieces."""
    teacher: str | None = None
    """The one that a student was distilled from."""
    shape: str
    parameters: int
    vocabulary: int
    corpus: dict[str, dict[str, int]]
    """By part, its documents, sentences and pieces."""
    training: tuple[TrainingPart, ...]
    matrix_rate: MatrixRate | None = None
    """None where the operations of a model are not known, and for trainings of earlier versions."""
    held_out: HeldOut | None
    """None where the model has no word head."""
    scores: tuple[MethodScore, ...] = ()
    cpu: str


def read_pretrain_report(path: Path) -> PretrainReport | None:
    """Read the report of a pretraining from report.json or its folder; None where it is not one."""
    try:
        return PretrainReport.model_validate_json((path / REPORT_JSON if path.is_dir() else path).read_bytes())
    except (OSError, ValidationError):
        return None


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
