"""Train with several seeds and select the best model.

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
from compress.train.core.state_dict import load_weights, named_weights
from compress.train.core.train_state import TrainResult
from compress.train.core.training_data import TrainingData
from compress.train.loop import train
from compress.train.objective import Objective

FOLDER = "training"
"""Subfolder of a work folder for checkpoints and other files that trainings need to resume."""


def train_best(
    build: Callable[[int], PreTrainedModel],
    objective: Callable[[PreTrainedModel, int], Objective],
    data: TrainingData,
    settings: Training,
    *,
    seed: int,
    work: Path,
    console: Console,
    track: str | None,
    label: str,
) -> tuple[PreTrainedModel, TrainResult]:
    """Train `settings.restarts` models built from seed, seed + 1 …; return the best one on select.

    Trainings that finished before a kill are not repeated. ``delete_work_files(work)`` removes what is left once the
    model is saved.
    """

    def attempt(number: int) -> tuple[PreTrainedModel, TrainResult]:
        model = build(seed + number)
        result = train(
            model,
            objective(model, seed + number),
            data.train,
            settings,
            seed=seed + number,
            work=work / FOLDER / f"{number}",
            evaluate=data.evaluate,
            larger_is_better=data.larger_is_better,
            console=console,
            track=track,
            label=label if settings.restarts == 1 else f"{label} {number + 1}/{settings.restarts}",
        )
        console.note(f"{label}: {result.summary}")
        return model, result

    if settings.restarts == 1:
        return attempt(0)
    results = [attempt(number)[1] for number in range(settings.restarts)]
    best = _best([result.score for result in results], data.larger_is_better)
    console.note(f"{label}: seed {seed + best} is the best of {settings.restarts}")
    return attempt(best)  # already trained: reads its weights


def _best(scores: list[float | None], larger_is_better: bool) -> int:
    """Return the index of the best score; the first among equals, or if nothing was scored."""
    ranked = [
        (score if larger_is_better else -score, -index) for index, score in enumerate(scores) if score is not None
    ]
    return -max(ranked)[1] if ranked else 0


def reset_weights_builder(model: PreTrainedModel, settings: Training) -> Callable[[int], PreTrainedModel]:
    """Return a function that resets a model in memory to its current weights for every restart, whatever the seed."""
    start = {name: tensor.clone() for name, tensor in named_weights(model).items()} if settings.restarts > 1 else None

    def build(seed: int) -> PreTrainedModel:
        if start is not None:
            load_weights(model, start)
        return model

    return build


def delete_work_files(work: Path) -> None:
    """Delete the files of trainings in a work folder, once their result is saved."""
    shutil.rmtree(work / FOLDER, ignore_errors=True)
