"""The answers that score steps kept, turned into scores: each is read once, whoever is compared with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.data.splits.prepare_splits import Roles, load_prepared
from compress.measure import BootstrapScorer, Quality, score_model
from compress.pipeline.graph import ModelVariant, Plan
from compress.pipeline.step_context import StepContext
from compress.pipeline.steps.prepare_data import SLICES_FILE
from compress.pipeline.steps.scoring_steps import ANSWERS_FILE, LENGTHS, SCORED_FILE, SCORED_ROLES
from compress.recipe.field_types import Role
from compress.recipe.measure_schema import Target
from compress.tasks import Kind, kind_of

REFERENCE = "torch-fp32"
"""The teacher in this variant is what candidates are judged against: the model as it runs today."""
TEACHER = f"teacher/{REFERENCE}"

Answers = dict[str, NDArray[Any]]


@dataclass
class Assessor:
    """Scores of every row at every target."""

    plan: Plan
    context: StepContext

    @cached_property
    def roles(self) -> Roles:
        """The rows."""
        return load_prepared(self.context.inputs["data"])

    @cached_property
    def kind(self) -> Kind:
        """What the task asks for."""
        return kind_of(self.roles.info.task_info)

    @cached_property
    def gold(self) -> Answers:
        """The right answers, by role."""
        return {role: self.kind.gold(self.roles.rows(role)) for role in SCORED_ROLES}

    @cached_property
    def _drawn(self) -> BootstrapScorer:
        """Keeps the scores of all draws, so that the teacher's serve every row."""
        recipe = self.plan.recipe
        return BootstrapScorer(self.kind, self.roles.info.task_info, recipe.measure.bootstrap, recipe.seed)

    @cached_property
    def _slices(self) -> dict[str, list[str]]:
        """By column, the value of each row of test; none where they could not be read."""
        folder = self.context.inputs.get("slices")
        found: dict[str, list[str]] = json.loads((folder / SLICES_FILE).read_bytes())["columns"] if folder else {}
        return found

    @cached_property
    def _kept(self) -> dict[Path, Answers]:
        return {}

    def quality(self, entry: ModelVariant, target: Target, role: Role) -> Quality | None:
        """The scores of one row on one role; None where it did not answer."""
        given = self._answers(entry, target)
        if given is None:
            return None
        scored = json.loads((self.context.inputs[entry.scores[target.title]] / SCORED_FILE).read_bytes())
        return score_model(
            self.kind,
            self.roles.info.task_info,
            given[role],
            self.gold[role],
            role=role,
            teacher_answers=self._others(TEACHER, entry, target, role),
            unquantized_answers=self._unquantized(entry, target, role),
            truncated=scored["truncated"][role],
            batch=scored["batch"] if entry.variant.batch_sensitive else None,
            lengths=given.get(LENGTHS),
            slices=self._slices,
            perturbed=self._perturbed(entry, target),
            drawn=self._drawn,
        )

    def floor(self) -> Quality | None:
        """The scores of the floor on test, and how far it is from the reference where that answered."""
        folder = self.context.inputs.get("floor")
        if folder is None:
            return None
        answers, gold = self._load(folder)["test"], self.gold["test"]
        found = score_model(self.kind, self.roles.info.task_info, answers, gold, drawn=self._drawn)
        if self._reference is None:
            return found
        versus = self._drawn.difference(answers, self._load(self._reference)["test"], gold)
        return found.model_copy(update={"versus_teacher": versus})

    def truncated(self) -> dict[str, float]:
        """By role, the share of rows (and of documents) of which the reference does not see everything.

        Empty where it was not scored.
        """
        shares: dict[str, float] = self._told.get("truncated", {})
        return shares

    def examples_per_row(self) -> float | None:
        """How many examples the reference was given of a row of test, on average; None where that was not noted."""
        mean: float | None = self._told.get("examples", {}).get("test")
        return mean

    @cached_property
    def _told(self) -> dict[str, Any]:
        """What scoring the reference noted beside the answers; nothing where it was not scored."""
        found: dict[str, Any] = json.loads((self._reference / SCORED_FILE).read_bytes()) if self._reference else {}
        return found

    @cached_property
    def _reference(self) -> Path | None:
        """What scoring the reference left, at the first target where it was scored."""
        reference = next((made for made in self.plan.variants if made.key == TEACHER), None)
        steps = reference.scores.values() if reference else ()
        return next((self.context.inputs[step] for step in steps if step in self.context.inputs), None)

    def _unquantized(self, entry: ModelVariant, target: Target, role: str) -> NDArray[Any] | None:
        if entry.variant.method is None:
            return None
        return self._others(f"{entry.model}/{entry.variant.needs}", entry, target, role)

    def _others(self, key: str, entry: ModelVariant, target: Target, role: str) -> NDArray[Any] | None:
        """The answers of the row called ``key`` at the same target; None for that row itself."""
        if key == entry.key:
            return None
        other = next((made for made in self.plan.variants if made.key == key), None)
        answers = self._answers(other, target) if other else None
        return answers[role] if answers else None

    def _answers(self, entry: ModelVariant, target: Target) -> Answers | None:
        step = entry.scores.get(target.title)
        folder = self.context.inputs.get(step) if step else None
        return self._load(folder) if folder else None

    def _perturbed(self, entry: ModelVariant, target: Target) -> Answers:
        """By perturbation, the answers to the changed texts of test; none where nobody asked or the step failed."""
        step = entry.perturbs.get(target.title)
        folder = self.context.inputs.get(step) if step else None
        return self._load(folder) if folder else {}

    def _load(self, folder: Path) -> Answers:
        if folder not in self._kept:
            with np.load(folder / ANSWERS_FILE, allow_pickle=False) as kept:
                self._kept[folder] = dict(kept)
        return self._kept[folder]
