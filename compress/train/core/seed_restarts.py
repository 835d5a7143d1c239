"""Several trainings from different seeds, of which the best is kept.

Dodge et al., "Fine-Tuning Pretrained Language Models: Weight Initializations, Data Orders, and Early Stopping", 2020
(arXiv:2002.06305): on small sets the seed alone moves the score by points.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedModel

from compress.console import Console
from compress.recipe.training_schema import Training
from compress.train.core.state_dict import load_weights, weights
from compress.train.core.train_state import TrainResult
from compress.train.core.training_data import TrainingData
from compress.train.loop import train
from compress.train.objective import Objective

FOLDER = "training"
"""Of a work folder: where trainings keep what they need to go on."""


def train_best(
    build: Callable[[int], PreTrainedModel],
    objective: Callable[[PreTrainedModel, int], Objective],
    material: TrainingData,
    settings: Training,
    *,
    seed: int,
    work: Path,
    console: Console,
    track: str | None,
    label: str,
) -> tuple[PreTrainedModel, TrainResult]:
    """Train `settings.restarts` models built from seed, seed + 1 …; returns the one that is best on select.

    Trainings that finished before a kill are not repeated. ``delete_work_files(work)`` removes what is left once the
    model is saved.
    """

    def attempt(number: int) -> tuple[PreTrainedModel, TrainResult]:
        model = build(seed + number)
        result = train(
            model,
            objective(model, seed + number),
            material.train,
            settings,
            seed=seed + number,
            work=work / FOLDER / f"{number}",
            evaluate=material.evaluate,
            larger_is_better=material.larger_is_better,
            console=console,
            track=track,
            label=label if settings.restarts == 1 else f"{label} {number + 1}/{settings.restarts}",
        )
        console.note(f"{label}: {result.summary}")
        return model, result

    if settings.restarts == 1:
        return attempt(0)
    results = [attempt(number)[1] for number in range(settings.restarts)]
    best = _best([result.score for result in results], material.larger_is_better)
    console.note(f"{label}: seed {seed + best} is the best of {settings.restarts}")
    return attempt(best)  # trained already: this reads its weights


def _best(scores: list[float | None], larger_is_better: bool) -> int:
    """Where the best score stands; the first among equals and where nothing was scored."""
    told = [
        (score if larger_is_better else -score, -number) for number, score in enumerate(scores) if score is not None
    ]
    return -max(told)[1] if told else 0


def reset_weights_builder(model: PreTrainedModel, settings: Training) -> Callable[[int], PreTrainedModel]:
    """Builds the same model in memory for every restart: its weights as they are now, whatever the seed."""
    start = {name: tensor.clone() for name, tensor in weights(model).items()} if settings.restarts > 1 else None

    def build(seed: int) -> PreTrainedModel:
        if start is not None:
            load_weights(model, start)
        return model

    return build


def delete_work_files(work: Path) -> None:
    """Remove what trainings left in a work folder, once their result is saved."""
    shutil.rmtree(work / FOLDER, ignore_errors=True)
