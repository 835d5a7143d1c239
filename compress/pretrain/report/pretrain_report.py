"""The report of a pretraining: what it predicts of held-out documents, beside what counting alone predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, ValidationError

from compress.pretrain.scores.clustered_mean import Estimate
from compress.storage.schema_version import up_to

REPORT_JSON = "report.json"


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
    """The model that training went on from; None for a new one."""
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
    precision_reason: str | None = None
    """Why it is that one where the recipe left it to `auto`."""
    ending: str | None = None

    @property
    def speed(self) -> float:
        """Pieces per second."""
        return self.pieces / self.seconds if self.seconds else 0.0


class MatrixRate(Frozen):
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


class PretrainReport(Frozen):
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
