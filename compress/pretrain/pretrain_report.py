"""The report of a pretraining: what it predicts of held-out documents, beside what counting alone predicts."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict
from transformers import PreTrainedModel

from compress.pretrain.clustered_mean import Estimate, clustered_mean
from compress.pretrain.corpus import Corpus
from compress.pretrain.held_out import HeldOutScores, sample, score
from compress.pretrain.ngram_entropy import ngram_losses
from compress.pretrain.packed_examples import PackedExamples
from compress.recipe.pretrain_schema import MaskedLM
from compress.storage.schema_version import up_to

REPORT_JSON, REPORT_PAGE = "report.json", "report.md"


class Frozen(BaseModel):
    """Base of the parts of the report."""

    model_config = ConfigDict(frozen=True)


class HeldOutResult(Frozen):
    """How well one model predicts masked pieces, and pairs, of held-out documents."""

    loss: Estimate
    """Of masked pieces, in nats a piece."""
    perplexity: Estimate
    pairs: Estimate | None = None
    """The share of pairs that it classifies right; None without a head for them."""


class HeldOut(Frozen):
    """What was scored, and by which models; all on the same masked pieces."""

    documents: int
    sequences: int
    pieces: int
    """Masked ones."""
    trained: HeldOutResult
    untouched: HeldOutResult | None = None
    """The model that training went on from; None for a new one, or one with another vocabulary."""
    unigram: Estimate
    """The entropy of pieces by their frequency in the training part."""
    bigram: Estimate
    """The same, given the piece before each."""
    below_unigram: Estimate
    """Unigram entropy less the model's loss, piece by piece."""
    below_bigram: Estimate


class MethodScore(Frozen):
    """What a method trains for, beside the prediction of masked pieces."""

    name: str
    trained: Estimate
    start: Estimate | None = None
    """Of the model before the training; None where it means nothing."""


class TrainingPart(Frozen):
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
    ending: str | None = None

    @property
    def speed(self) -> float:
        """Pieces per second."""
        return self.pieces / self.seconds if self.seconds else 0.0


class PretrainReport(Frozen):
    """The content of report.json."""

    schema_version: Annotated[int, up_to(1)] = 1
    name: str
    made_by: str
    method: str
    start: str | None
    """What training went on from; None for a new model."""
    teacher: str | None = None
    """The one that a student was distilled from."""
    shape: str
    parameters: int
    vocabulary: int
    corpus: dict[str, dict[str, int]]
    """By part, its documents, sentences and pieces."""
    training: tuple[TrainingPart, ...]
    matrix_rate: float | None = None
    """The training's operations per second as a share of this machine's fastest matrix product; None where that was
    not measured (`compress bench --limits` measures it)."""
    held_out: HeldOut | None
    """None where the model has no word head."""
    scores: tuple[MethodScore, ...] = ()
    cpu: str


def score_held_out(
    model: PreTrainedModel,
    untouched: PreTrainedModel | None,
    examples: PackedExamples,
    train: Corpus,
    settings: MaskedLM,
) -> HeldOut:
    """Score models on the same masked pieces of held-out sequences, and count what n-grams predict of them."""
    special = examples.special
    chosen = sample(examples, final=True)
    scores = score(model, examples, chosen, settings, special.mask)
    before = np.where(scores.before == special.cls, special.sep, scores.before)  # a document begins after a separator
    counted = ngram_losses(train, scores.targets, before)

    def mean(values: np.ndarray) -> Estimate:
        return clustered_mean(values, scores.documents)

    first = score(untouched, examples, chosen, settings, special.mask) if untouched is not None else None
    return HeldOut(
        documents=len(np.unique(scores.documents)),
        sequences=len(chosen),
        pieces=len(scores.losses),
        trained=_result(scores),
        untouched=_result(first) if first is not None else None,
        unigram=mean(counted.unigram),
        bigram=mean(counted.bigram),
        below_unigram=mean(counted.unigram - scores.losses),
        below_bigram=mean(counted.bigram - scores.losses),
    )


def _result(scores: HeldOutScores) -> HeldOutResult:
    loss = clustered_mean(scores.losses, scores.documents)
    pairs = clustered_mean(scores.pairs_right, scores.pair_documents) if len(scores.pairs_right) else None
    return HeldOutResult(loss=loss, perplexity=loss.exponential(), pairs=pairs)


def result_rows(report: PretrainReport) -> list[dict[str, str | None]]:
    """Return the results as rows of a table: the model, what it started from, and what counting predicts."""
    rows, held = list[dict[str, str | None]](), report.held_out
    if held is not None:
        generates = report.method == "replaced_tokens"
        results = [(f"{report.name}'s generator" if generates else report.name, held.trained)]
        if held.untouched is not None:
            results.insert(0, (f"{report.start}, untouched", held.untouched))
        for name, result in results:
            rows.append({"": name, "loss": result.loss.text, "perplexity": result.perplexity.text})
            if held.trained.pairs is not None:
                rows[-1]["next sentence right"] = result.pairs.text if result.pairs else None
        for name, entropy in (("unigram entropy", held.unigram), ("bigram entropy", held.bigram)):
            rows.append({"": name, "loss": entropy.text, "perplexity": entropy.exponential().text})
    return rows


def score_rows(report: PretrainReport) -> list[dict[str, str | None]]:
    """Return the method's own scores as rows of a table; none where it has no others."""
    return [
        {"": score.name, "trained": score.trained.text, "at the start": score.start.text if score.start else None}
        for score in report.scores
    ]


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
        *_table(result_rows(report)),
        *_table(score_rows(report)),
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


def _table(rows: list[dict[str, str | None]]) -> list[str]:
    """Return a table as lines of Markdown with an empty one after it; none without rows."""
    if not rows:
        return []
    columns = list(rows[0])
    cells = [columns, ["---"] * len(columns), *([row.get(column) or "" for column in columns] for row in rows)]
    return [*(f"| {' | '.join(line)} |" for line in cells), ""]


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
    return (
        f"- {part.length} pieces: {part.steps:,} steps ({part.passes:.2f} passes), {part.pieces:,} pieces in"
        f" {part.seconds / 60:.1f} minutes, {part.speed:,.0f} pieces per second in {part.precision}{ending}"
    )


def _rate_line(report: PretrainReport) -> str:
    share = "not measured" if report.matrix_rate is None else f"{report.matrix_rate:.0%}"
    return f"- Share of the matrix rate: {share} ({report.cpu})"
