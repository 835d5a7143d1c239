"""Scores of a cross-encoder for each training query with each of its documents.

A cross-encoder reads both texts at once: too slow for search, but more accurate, so the loss `margin` distils it. Every
pair is scored once, before training, and stored in a file.
"""

import hashlib
import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.console import Console
from compress.data.encode import batches_by_length, encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.environment import usable_cores
from compress.errors import DataError, ModelError, UsageError
from compress.model_folder.model_info import TaskInfo, read_info
from compress.recipe.distill_schema import Distill
from compress.recipe.loss_schema import MARGIN_LOSS
from compress.recipe.task_schema import Task
from compress.runtime import open_predictor
from compress.runtime.model_formats import describe_model_file
from compress.runtime.predictor import Placement
from compress.storage.atomic_write import atomic_write
from compress.storage.file_digests import combined_digest, digests
from compress.storage.file_names import expanded_user
from compress.tasks import kind_of
from compress.tasks.base import LazyRows, Row
from compress.train.core.distributed import current_processes
from compress.train.core.seed_restarts import FOLDER

BATCH = 64
"""Pairs per batch."""

Scores = NDArray[np.float32]


class ScoredRows(LazyRows):
    """Rows with their `scores`: the positive's first, then those of the negatives."""

    def __init__(self, rows: Sequence[Row], scores: Scores) -> None:
        """``scores`` are those of all rows, concatenated."""
        self._rows, self._scores = rows, scores
        self._ends = np.cumsum([len(documents_of(row)) for row in rows])

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, index: int) -> Row:
        """Return one row with its scores."""
        row, end = self._rows[index], int(self._ends[index])
        return {**row, "scores": self._scores[end - len(documents_of(row)) : end].tolist()}


def documents_of(row: Row) -> list[str]:
    """Return the documents of a training row of retrieval, in the order of its examples."""
    return [*row["positives"], *row["negatives"]]


def check_margin_loss(settings: Distill, task: Task | TaskInfo) -> None:
    """Refuse a cross-encoder without the loss `margin`, a model that is none, and the loss for other tasks."""
    used = MARGIN_LOSS in settings.loss_names()
    if used and not kind_of(task).searches:
        raise UsageError(
            f"the loss {MARGIN_LOSS} compares a query's documents, and {task.kind} has none.",
            hint="it is for retrieval",
        )
    if settings.cross_encoder is None:
        return
    if not used:
        raise UsageError("cross_encoder is set, but no loss uses it.", hint=f"add {MARGIN_LOSS}: 1.0")
    ranks = read_info(expanded_user(settings.cross_encoder)).task
    if ranks is None or kind_of(ranks).sentence_transformers != "CrossEncoder":
        actual = "has no task in its compress.json" if ranks is None else f"is a {ranks.kind} model"
        raise ModelError(
            f"cross_encoder: {settings.cross_encoder} {actual}; expected a ranking model (task.kind: ranking).",
            hint="compress run with a ranking recipe trains one; give the folder of its winner",
        )


def add_cross_encoder_scores(
    rows: Sequence[Row], settings: Distill, task: TaskInfo, work: Path, console: Console
) -> Sequence[Row]:
    """Return the training rows with the scores that the loss `margin` compares; unchanged without this loss.

    Scores are stored in ``work`` until the training is saved, so that a killed step does not compute them again, under
    a digest of the cross-encoder and the rows. Of several processes only the main one computes them.
    """
    check_margin_loss(settings, task)
    if MARGIN_LOSS not in settings.loss_names():
        return rows
    if not any(row["negatives"] for row in rows):
        raise DataError(
            f"no training row has negatives, and the loss {MARGIN_LOSS} compares positives with negatives.",
            hint="set task.hard_negatives: 4 to mine some, or name a column of them in task.negatives",
        )
    if settings.cross_encoder is None:
        if any(len(row.get("scores") or ()) != len(documents_of(row)) for row in rows):
            raise UsageError(
                f"the loss {MARGIN_LOSS} needs one score per document of each row.",
                hint="set distill.cross_encoder to the folder of a model that computes them",
            )
        return rows
    folder, processes = expanded_user(settings.cross_encoder), current_processes()
    pairs = hashlib.sha256()
    for row in rows:
        pairs.update(json.dumps([row["query"], documents_of(row)]).encode())
    hashed = {**digests(folder), "rows": pairs.hexdigest()}
    path = work / FOLDER / f"scores-{combined_digest(hashed)[:16]}.npy"
    if processes.is_main and not path.is_file():
        content = BytesIO()
        np.save(content, score_pairs(rows, folder, processes.device.type, console))
        atomic_write(path, content.getvalue())
    processes.wait()
    return ScoredRows(rows, np.load(path, mmap_mode="r"))


def score_pairs(rows: Sequence[Row], folder: Path, device: str, console: Console) -> Scores:
    """Return the cross-encoder's logits for the query of each row with each of its documents, all rows concatenated."""
    task = read_info(folder).task
    assert task is not None
    kind = kind_of(task)
    pairs = (kind.from_input((str(row["query"]), *documents_of(row)), task) for row in rows)
    encoded = encode_rows(pairs, task, TextTokenizer.load(folder))
    on_gpu = describe_model_file(folder).format == "torch" and device == "cuda"
    predictor = open_predictor(folder, Placement("cuda" if on_gpu else "cpu", usable_cores()))
    scores = np.zeros(len(encoded), np.float32)
    with console.progress(len(encoded), "cross-encoder", "pairs") as progress:
        for indices in batches_by_length(encoded.lengths, BATCH):
            arrays = encoded.batch(indices)
            scores[indices] = np.concatenate(kind.decode(predictor.predict(arrays), arrays, task))
            progress.advance(len(indices))
    return scores
