"""The steps that predict: every variant on select and test, on changed texts, and a simple baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from compress.pipeline.step_context import StepContext
from compress.recipe.field_types import Role
from compress.storage.file_names import ANSWERS_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from compress.data.encode import EncodedRows
    from compress.measure.predict_rows import EmbeddedDocuments
    from compress.recipe.measure_schema import Target
    from compress.tasks.base import Row
    from compress.variants import Variant

    RowSet = tuple[Sequence[Row], Sequence[Row]]
    """Rows, and the documents that are searched for them."""

Device = Literal["cpu", "cuda"]

SCORED_FILE = "scored.json"

SCORED_ROLES: tuple[Role, ...] = ("select", "test")
LENGTHS = "lengths"
"""Key of the stored lengths of the test rows, in word pieces."""
SCORING_BATCH = 32
"""Rows scored together where a variant's outputs do not depend on what shares its batch."""


def scoring_batch(variant: Variant, target: Target) -> int:
    """Return how many rows are scored together for a target."""
    return target.batch if variant.batch_sensitive else SCORING_BATCH


def score(context: StepContext, parent: str, variant: Variant, device: Device, batch: int) -> None:
    """Store the outputs of one variant on all rows of select and test."""
    import numpy as np

    from compress.data.splits.prepare_splits import load_prepared

    roles = load_prepared(context.inputs["data"])
    rows: dict[str, RowSet] = {role: (roles.rows(role), roles.documents(role)) for role in SCORED_ROLES}
    stored, truncated, examples = {}, {}, {}
    for role, outputs, encoded, searched in predict_sets(context.inputs[parent], variant, device, batch, rows):
        stored[role], truncated[role] = outputs, encoded.truncated
        examples[role] = len(encoded) / len(encoded.counts)
        if searched is not None:
            truncated[f"{role}'s documents"] = searched.truncated
        if role == "test":
            row = np.repeat(np.arange(len(encoded.counts)), encoded.counts)
            stored[LENGTHS] = np.bincount(row, weights=encoded.lengths).astype(np.int64)
    np.savez(context.work / ANSWERS_FILE, allow_pickle=False, **stored)
    facts = {"truncated": truncated, "examples": examples, "batch": batch, "device": device}
    context.write_json(SCORED_FILE, facts)


def perturb(
    context: StepContext, parent: str, variant: Variant, device: Device, batch: int, names: Sequence[str], seed: int
) -> None:
    """Store the outputs of one variant on the rows of test with their texts changed in each way of ``names``."""
    import numpy as np

    from compress.data.splits.prepare_splits import load_prepared
    from compress.measure.quality.robustness import PerturbedRows
    from compress.tasks import kind_of

    roles = load_prepared(context.inputs["data"])
    kind, test, documents = kind_of(roles.info.task_info), roles.rows("test"), roles.documents("test")
    rows: dict[str, RowSet] = {name: (PerturbedRows(test, kind, name, seed), documents) for name in names}
    predicted = predict_sets(context.inputs[parent], variant, device, batch, rows)
    stored = {name: outputs for name, outputs, *_ in predicted}
    np.savez(context.work / ANSWERS_FILE, allow_pickle=False, **stored)


def predict_sets(
    folder: Path, variant: Variant, device: Device, batch: int, rows: Mapping[str, RowSet]
) -> Iterator[tuple[str, NDArray[Any], EncodedRows, EmbeddedDocuments | None]]:
    """Yield each set of rows with the variant's outputs, the encoded rows, and the embedded documents.

    Sets that follow each other and search the same documents have them embedded once. The task is the folder's own: it
    has the thresholds that were tuned for this model.
    """
    from compress.data.tokenizer import TextTokenizer
    from compress.environment import usable_cores
    from compress.measure.predict_rows import embed_documents, predict_rows
    from compress.model_info import read_info
    from compress.runtime import open_predictor
    from compress.runtime.predictor import Placement

    predictor = open_predictor(folder, Placement(device, usable_cores()), None if variant.builder else variant.info)
    task, tokens = read_info(folder).task, TextTokenizer.load(folder)
    assert task is not None  # every model of a run was made for its task
    searched, embedded = None, None
    for name, (given, documents) in rows.items():
        if documents is not embedded:
            searched = embed_documents(predictor.predict, documents, task, tokens, batch)
            embedded = documents
        yield name, *predict_rows(predictor.predict, given, task, tokens, batch, searched), searched


def floor(context: StepContext, seed: int) -> None:
    """Store the predictions of the baseline on test."""
    import numpy as np

    from compress.data.splits.prepare_splits import load_prepared
    from compress.measure.baselines import baseline_predictions

    roles = load_prepared(context.inputs["data"])
    task = roles.info.task_info
    predictions = baseline_predictions(roles.rows("train"), roles.rows("test"), task, seed, roles.documents("test"))
    np.savez(context.work / ANSWERS_FILE, test=predictions)
