"""The steps of a pretraining: vocabulary, corpus, packing, training, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from compress.errors import UsageError, nearest
from compress.model_sources import identity
from compress.pipeline.graph import Step, StepPlan
from compress.pipeline.steps import pretrain_steps as steps
from compress.recipe.pretrain_schema import PretrainRecipe, Start, Text
from compress.steps.hashed_settings import hashed_settings
from compress.storage.file_digests import file_digest


@dataclass
class PretrainPlan(StepPlan):
    """The steps of a pretraining recipe."""

    recipe: PretrainRecipe
    steps: list[Step] = field(default_factory=list)

    @property
    def track(self) -> str | None:
        """The experiment tracker of trainings."""
        return self.recipe.track


def make_pretrain_plan(recipe: PretrainRecipe, cards: Sequence[Path] = ()) -> PretrainPlan:
    """Lay out the steps of a pretraining; nothing runs, nothing heavy is loaded."""
    plan, seed = PretrainPlan(recipe), recipe.seed
    text = {"text": _text_identity(recipe.text), "seed": seed}
    start = {"start": _model_identity(recipe.start, cards)}
    bound: dict[str, Any] = {"recipe": recipe, "cards": tuple(cards)}
    vocabulary = list[str]()
    if recipe.vocabulary is not None:
        settings = {**text, **start, "vocabulary": hashed_settings(recipe.vocabulary)}
        vocabulary = [
            plan.add(steps.VOCABULARY, "pretrain-vocabulary", settings, [], partial(steps.vocabulary, **bound))
        ]
    plan.add(steps.CORPUS, "pretrain-corpus", {**text, **start}, vocabulary, partial(steps.corpus, **bound))
    packed = {"lengths": steps.packed_lengths(recipe), "pairs": recipe.next_sentence, "seed": seed}
    plan.add(steps.PACKING, "pretrain-packing", packed, [steps.CORPUS], partial(steps.packing, **bound))
    needs = [*vocabulary, steps.CORPUS, steps.PACKING]
    plan.add(
        steps.PRETRAIN,
        "pretrain",
        {**_training_settings(recipe, cards), **start, "seed": seed},
        needs,
        partial(steps.pretrain, **bound),
        trains=True,
    )
    named = {"name": recipe.name, "start": recipe.start and recipe.start.source}
    plan.add(steps.REPORT, "pretrain-report", named, [*needs, steps.PRETRAIN], partial(steps.report, **bound))
    return plan


def _training_settings(recipe: PretrainRecipe, cards: Sequence[Path]) -> dict[str, Any]:
    """The settings that change what is trained."""
    sections = {"shape", "masked_lm", "next_sentence", "replaced_tokens", "train"}
    chosen = {key: value for key, value in hashed_settings(recipe).items() if key in sections}
    if recipe.distill is not None:
        chosen["distill"] = hashed_settings(recipe.distill) | {
            "teacher": _model_identity(recipe.distill.teacher, cards)
        }
    return chosen


def _model_identity(start: Start | None, cards: Sequence[Path]) -> dict[str, Any] | None:
    return None if start is None else identity(start.source, start.revision, cards)


def _text_identity(text: Text) -> dict[str, Any]:
    """What the documents are read from: contents of files, never their paths."""
    settings = hashed_settings(text)
    if text.files:
        settings["files"] = [[*Path(file).suffixes, file_digest(_existing(Path(file)))] for file in text.files]
    return settings


def _existing(path: Path) -> Path:
    if path.is_dir():
        raise UsageError(f"text.files: {path} is a folder where a file is expected.")
    if not path.is_file():
        nearby = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise UsageError(f"text.files: there is no file {path}{nearest(path.name, nearby)}.")
    return path
