"""The steps that predict, and the quality step, which turns stored outputs into scores with intervals.

Every variant predicts select and test, and changed texts; so does a simple baseline. Scores are made once, for
selection and report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.data.tokenizer import TextTokenizer
from compress.environment import usable_cores
from compress.measure import BootstrapScorer, Quality, score_model
from compress.measure.quality.robustness import PerturbedRows
from compress.model_folder.model_info import read_info
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.prepare_data import SLICES_FILE
from compress.recipe.field_types import Role
from compress.recipe.measure_schema import Target
from compress.runtime import open_predictor
from compress.runtime.predictor import Placement
from compress.select.ledger import Ledger, TargetResult, write_ledger
from compress.storage.file_names import ANSWERS_FILE
from compress.tasks import Kind, kind_of

if TYPE_CHECKING:
    from pathlib import Path

    from compress.data.encode import EncodedRows
    from compress.measure.predict_rows import EmbeddedDocuments
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
    from compress.measure.predict_rows import embed_documents, predict_rows

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
    from compress.measure.baselines import baseline_predictions

    roles = load_prepared(context.inputs["data"])
    task = roles.info.task_info
    predictions = baseline_predictions(roles.rows("train"), roles.rows("test"), task, seed, roles.documents("test"))
    np.savez(context.work / ANSWERS_FILE, test=predictions)


REFERENCE = "torch-fp32"
"""The teacher in this variant is what candidates are compared with."""

Outputs = dict[str, NDArray[Any]]


def reference_key(plan: Plan) -> str:
    """The row that candidates are compared with: `teacher/torch-fp32`."""
    return f"{plan.teacher.name}/{REFERENCE}"


def quality(context: StepContext, plan: Plan) -> None:
    """Score every row on every target it ran on."""
    scorer = QualityScorer(plan, context)
    results = [scorer.result(entry, target) for entry in plan.variants for target in scored_on(plan, entry)]
    floor, probe = scorer.baseline("floor"), scorer.baseline(plan.teacher.step)
    write_ledger(context.work, Ledger(results=tuple(results), floor=floor, probe=probe))


def scored_on(plan: Plan, entry: ModelVariant) -> list[Target]:
    """The targets on which a row is scored."""
    return [target for target in plan.recipe.targets if target.title in entry.scores]


KEPT_OUTPUTS = 4
"""A row's own, those of changed texts, the reference's and those of its unquantized model."""


@dataclass
class QualityScorer:
    """Scores rows; the stored outputs that were used last are kept, as rows are compared with the same ones."""

    plan: Plan
    context: StepContext
    _loaded: dict[str, Outputs] = field(default_factory=dict)

    @cached_property
    def roles(self) -> PreparedData:
        """The prepared rows."""
        return load_prepared(self.context.inputs["data"])

    @cached_property
    def reference_facts(self) -> dict[str, Any]:
        """The facts recorded when the reference was scored; empty where it was not."""
        return self._facts(self._reference) if self._reference else {}

    def result(self, entry: ModelVariant, target: Target) -> TargetResult:
        """The scores of one row on a target."""
        select, test = self.quality(entry, target, "select"), self.quality(entry, target, "test")
        return TargetResult(key=entry.key, target=target.title, select=select, test=test)

    def quality(self, entry: ModelVariant, target: Target, role: Role) -> Quality | None:
        """The scores of one row on one role; None where there are no outputs."""
        step = entry.scores.get(target.title)
        outputs = self._outputs(step)
        if not outputs or step is None:
            return None
        scored = self._facts(step)
        return score_model(
            self._kind,
            self.roles.info.task_info,
            outputs[role],
            self.gold[role],
            role=role,
            teacher_answers=self._others(reference_key(self.plan), entry, target).get(role),
            unquantized_answers=self._others(entry.unquantized, entry, target).get(role),
            truncated=scored["truncated"][role],
            batch=scored["batch"] if entry.variant.batch_sensitive else None,
            lengths=outputs.get(LENGTHS),
            slices=self._slices,
            perturbed=self._outputs(entry.perturbs.get(target.title)),
            scorer=self._bootstrap,
        )

    def baseline(self, step: str) -> Quality | None:
        """The scores of a step's predictions on test, and their distance to the reference where that was scored."""
        answers, gold = self._outputs(step).get("test"), self.gold["test"]
        if answers is None:
            return None
        scores = score_model(self._kind, self.roles.info.task_info, answers, gold, scorer=self._bootstrap)
        reference = self._outputs(self._reference).get("test")
        if reference is None:
            return scores
        return scores.model_copy(update={"versus_teacher": self._bootstrap.difference(answers, reference, gold)})

    def step_of(self, key: str, title: str) -> str | None:
        """The step that scored a row for a target; rows of the same step have the same answers."""
        entry = self._entries.get(key)
        return entry.scores.get(title) if entry else None

    def answers(self, key: str, title: str) -> NDArray[Any] | None:
        """The predictions of a row on test, as scored for a target."""
        return self._outputs(self.step_of(key, title)).get("test")

    @cached_property
    def _kind(self) -> Kind:
        return kind_of(self.roles.info.task_info)

    @cached_property
    def gold(self) -> Outputs:
        """The true labels of each role."""
        return {role: self._kind.gold(self.roles.rows(role)) for role in SCORED_ROLES}

    @cached_property
    def _bootstrap(self) -> BootstrapScorer:
        """Caches the scores of all resamples, so that the teacher's serve every row."""
        recipe = self.plan.recipe
        return BootstrapScorer(self._kind, self.roles.info.task_info, recipe.measure.bootstrap, recipe.seed)

    @cached_property
    def _slices(self) -> dict[str, list[str]]:
        """By column, the value of each row of test; empty where they could not be read."""
        folder = self.context.inputs.get("slices")
        columns: dict[str, list[str]] = json.loads((folder / SLICES_FILE).read_bytes())["columns"] if folder else {}
        return columns

    @cached_property
    def _entries(self) -> dict[str | None, ModelVariant]:
        return {entry.key: entry for entry in self.plan.variants}

    @cached_property
    def _reference(self) -> str | None:
        """The step that scored the reference on the first target where it was scored."""
        entry = self._entries.get(reference_key(self.plan))
        return next((step for step in entry.scores.values() if step in self.context.inputs), None) if entry else None

    def _others(self, key: str | None, entry: ModelVariant, target: Target) -> Outputs:
        """The outputs of the row called ``key`` on the same target; empty for that row itself."""
        other = self._entries.get(key)
        return self._outputs(other.scores.get(target.title)) if other and other.key != entry.key else {}

    def _facts(self, step: str) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self.context.inputs[step] / SCORED_FILE).read_bytes())
        return facts

    def _outputs(self, step: str | None) -> Outputs:
        """The outputs that a step stored; empty where it has none."""
        if step is None or not (step in self.context.inputs and (self.context.inputs[step] / ANSWERS_FILE).is_file()):
            return {}
        outputs = self._loaded.pop(step, None)
        if outputs is None:
            with np.load(self.context.inputs[step] / ANSWERS_FILE, allow_pickle=False) as stored:
                outputs = dict(stored)
        self._loaded[step] = outputs
        while len(self._loaded) > KEPT_OUTPUTS:
            del self._loaded[next(iter(self._loaded))]  # that of the longest ago
        return outputs
