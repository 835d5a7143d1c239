"""What a cross-encoder, which reads both texts at once, says of each training query with each of its documents.

It is too slow to search with, and better than what can search: the loss `margin` has a student follow it. Every pair is
scored once, before training begins, into a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.console import Console
from compress.data.encode import batches_by_length, encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.environment import usable_cores
from compress.errors import DataError, ModelError, UsageError
from compress.model_info import TaskInfo, combined_digest, digests, read_info
from compress.recipe.schema import Task
from compress.recipe.training_schema import Distill
from compress.runtime import open_predictor
from compress.runtime.model_formats import describe_model_file
from compress.runtime.predictor import Placement
from compress.tasks import kind_of
from compress.tasks.base import Row
from compress.tasks.parsing.lazy_rows import LazyRows
from compress.train.core.distributed import Processes
from compress.train.core.seed_restarts import FOLDER

MARGIN_LOSS = "margin"
KIND = "ranking"
"""What a cross-encoder's task must be."""

BATCH = 64
"""Pairs that are scored together."""

Scores = NDArray[np.float32]


class ScoredRows(LazyRows):
    """Rows with their `scores`: the positive's first, then those of the negatives."""

    def __init__(self, rows: Sequence[Row], scores: Scores) -> None:
        """``scores`` are those of all rows, end to end."""
        self._rows, self._scores = rows, scores
        self._ends = np.cumsum([len(documents_of(row)) for row in rows])
        if len(scores) != self._ends[-1]:
            raise DataError(f"there are {len(scores):,} scores for the {self._ends[-1]:,} documents of the rows.")

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, place: int) -> Row:
        """One row with its scores."""
        row, end = self._rows[place], int(self._ends[place])
        return {**row, "scores": self._scores[end - len(documents_of(row)) : end].tolist()}


def documents_of(row: Row) -> list[str]:
    """The documents of a row of retrieval's training rows, in the order of its examples."""
    return [*row["positives"], *row["negatives"]]


def check_margin_loss(settings: Distill, task: Task | TaskInfo) -> None:
    """Refuse settings that name a cross-encoder for nothing, or one that is none; and the loss where nothing ranks."""
    wanted = MARGIN_LOSS in settings.loss_names()
    if wanted and kind_of(task).problem != "retrieval":
        raise UsageError(
            f"the loss {MARGIN_LOSS} compares a query's documents, and {task.kind} has none.",
            hint="it is for retrieval",
        )
    if settings.cross_encoder is None:
        return
    if not wanted:
        raise UsageError("cross_encoder is named, and no loss asks it.", hint=f"{MARGIN_LOSS}: 1.0 beside it does")
    ranks = read_info(_folder(settings.cross_encoder)).task
    if ranks is None or ranks.kind != KIND:
        told = "does not say what it answers" if ranks is None else f"answers {ranks.kind}"
        raise ModelError(
            f"cross_encoder: {settings.cross_encoder} {told}; expected a model that ranks texts (task.kind: {KIND}).",
            hint="compress run with a ranking recipe makes one; its winner's folder can stand here",
        )


def add_cross_encoder_scores(
    rows: Sequence[Row], settings: Distill, task: TaskInfo, work: Path, console: Console
) -> Sequence[Row]:
    """The training rows with what the loss `margin` compares; as they are where it weighs nothing.

    Scores are kept in ``work`` until its trainings are forgotten, so that a killed step does not ask again; they go by
    the cross-encoder and the rows. Of several processes only the main one asks.
    """
    check_margin_loss(settings, task)
    if MARGIN_LOSS not in settings.loss_names():
        return rows
    _check_negatives(rows, console)
    if settings.cross_encoder is None:
        _check_scores(rows)
        return rows
    folder, processes = _folder(settings.cross_encoder), Processes()
    told = {**digests(folder), "rows": _digest(rows)}
    kept = work / FOLDER / f"scores-{combined_digest(told)[:16]}.npy"
    if processes.is_main and not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        aside = kept.with_name(f"partial-{kept.name}")
        np.save(aside, score_pairs(rows, folder, processes.device.type, console))
        aside.replace(kept)
    processes.wait()
    return ScoredRows(rows, np.load(kept, mmap_mode="r"))


def score_pairs(rows: Sequence[Row], folder: Path, device: str, console: Console) -> Scores:
    """The cross-encoder's logit for the query of each row with each of its documents, of all rows end to end."""
    task = read_info(folder).task
    assert task is not None
    kind = kind_of(task)
    asked = (kind.from_input((str(row["query"]), *documents_of(row)), task) for row in rows)
    encoded = encode_rows(asked, task, TextTokenizer.load(folder))
    own = describe_model_file(folder).format == "torch" and device == "cuda"
    predictor = open_predictor(folder, Placement("cuda" if own else "cpu", usable_cores()))
    scores = np.zeros(len(encoded), np.float32)
    with console.progress(len(encoded), "cross-encoder", "pairs") as progress:
        for indices in batches_by_length(encoded.lengths, BATCH):
            arrays = encoded.batch(indices)
            scores[indices] = np.concatenate(kind.decode(predictor.predict(arrays), arrays, task))
            progress.advance(len(indices))
    return scores


def _digest(rows: Sequence[Row]) -> str:
    """What the pairs of all rows are known by."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([row["query"], documents_of(row)]).encode())
    return digest.hexdigest()


def _folder(name: str) -> Path:
    return Path(name).expanduser()


def _check_negatives(rows: Sequence[Row], console: Console) -> None:
    """Margins are those to negatives: refuse rows of which none has any, and tell how many have none."""
    without = sum(1 for row in rows if not row["negatives"])
    if without == len(rows):
        raise DataError(
            f"no training row has negatives, and the loss {MARGIN_LOSS} compares positives with negatives.",
            hint="set task.hard_negatives: 4 to mine some, or name a column of them in task.negatives",
        )
    if without:
        console.warn(
            f"{without:,} of {len(rows):,} training rows have no negatives: the loss {MARGIN_LOSS} passes them over."
        )


def _check_scores(rows: Sequence[Row]) -> None:
    """Where no cross-encoder is named the rows must bring its scores along."""
    for place, row in enumerate(rows, 1):
        scores, documents = len(row.get("scores") or ()), len(documents_of(row))
        if scores != documents:
            raise UsageError(
                f"the loss {MARGIN_LOSS} needs one score a document; row {place} has {scores} for {documents}.",
                hint="distill.cross_encoder names the folder of a model that gives them",
            )
