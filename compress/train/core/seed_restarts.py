"""Train with several seeds, or several settings, and select the best model.

Dodge et al., "Fine-Tuning Pretrained Language Models: Weight Initializations, Data Orders, and Early Stopping", 2020
(arXiv:2002.06305): on small sets the seed alone moves the score by points.
"""

import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel

from compress.console import Console
from compress.model_folder.model_history import ChosenSetting, TrialInfo
from compress.models.encoder_parts import shape_of
from compress.recipe.training_schema import AUTO, EpochBounds, Finetune, Training
from compress.train.core.auto_settings import describe_chosen, resolve_auto
from compress.train.core.checkpoints import TrainResult
from compress.train.core.optimizer import load_weights, named_weights
from compress.train.core.training_data import TrainingData
from compress.train.loop import train
from compress.train.objective import Objective

FOLDER = "training"
"""Subfolder of a work folder for checkpoints and other files that trainings need to resume."""


Within = Callable[[PreTrainedModel], AbstractContextManager[object]]
"""Makes a context in which a model computes otherwise than usual, with the same weights."""


@dataclass(frozen=True)
class TrainContext:
    """Seed, work folder and console of the trainings of one step."""

    step: str
    seed: int
    work: Path
    console: Console
    track: str | None
    """The experiment tracker."""
    within: Within = nullcontext
    """The context in which a model is trained and evaluated."""

    def warn(self, warnings: Iterable[str]) -> None:
        """Print warnings."""
        for warning in warnings:
            self.console.warn(f"{self.step}: {warning}")


@contextmanager
def context_in_memory(
    step: str, seed: int, work: Path | None, console: Console | None, track: str | None, within: Within = nullcontext
) -> Iterator[TrainContext]:
    """Return the context of a training whose result stays in memory; its work files are deleted after the block."""
    with tempfile.TemporaryDirectory() as folder:
        work = work or Path(folder)
        yield TrainContext(step, seed, work, console or Console("quiet"), track, within)
        delete_work_files(work)


def train_best(
    build: Callable[[int], PreTrainedModel],
    objective: Callable[[PreTrainedModel, int], Objective],
    data: TrainingData,
    settings: Training,
    context: TrainContext,
    start_competes: bool = True,
    score_on_test: Callable[[PreTrainedModel], float | None] | None = None,
) -> tuple[PreTrainedModel, TrainResult]:
    """Train models built from seed, seed + 1 … with each point of the grid; return the best one on select.

    Settings that are `auto` get their values here. With ``start_competes`` a model may remain what ``build`` returned.
    ``score_on_test`` is recorded for every model, and decides nothing. Trainings that finished before a kill are not
    repeated. ``delete_work_files`` removes what is left once the model is saved.
    """
    console = context.console
    planned = [(point, context.seed + number) for point in settings.points() for number in range(settings.seed_count)]
    count = len(planned)

    def attempt(number: int) -> tuple[PreTrainedModel, TrainResult]:
        point, seed = planned[number]
        label = context.step if count == 1 else f"{context.step} {number + 1}/{count}"
        model = build(seed)
        resolved, chosen = resolve_auto(point, data.facts(shape_of(model).hidden))
        if number == 0:
            _note_auto(resolved, chosen, context)
        losses = objective(model, seed)
        with losses.learning(model), context.within(model):
            result = train(
                model,
                losses,
                data.train,
                resolved,
                seed=seed,
                work=context.work / FOLDER / f"{number}",
                evaluate=data.evaluate,
                larger_is_better=data.larger_is_better,
                console=console,
                track=context.track,
                label=label,
                start_competes=start_competes,
                noise=data.noise,
            )
        console.note(f"{label}: {_describe(settings, point)}{result.summary}")
        return model, result.model_copy(
            update={"chosen": chosen | _chosen_epochs(point, resolved, result), "all_seconds": result.seconds}
        )

    if count == 1:
        return attempt(0)
    trials, seconds = [], 0.0
    for number, (point, seed) in enumerate(planned):
        model, result = attempt(number)
        test = score_on_test(model) if score_on_test else None
        trials.append(TrialInfo(seed=seed, settings=_values(settings, point), score=result.score, test=test))
        seconds += result.seconds
    best = _best_of(trials, data.larger_is_better)
    point, seed = planned[best]
    console.note(f"{context.step}: {_describe(settings, point)}seed {seed} is the best of {count}")
    model, result = attempt(best)  # already trained: reads its weights
    return model, result.model_copy(update={"trials": tuple(trials), "all_seconds": seconds})


def _best_of(trials: Sequence[TrialInfo], larger_is_better: bool) -> int:
    """Return the number of the trial with the best score."""
    sign = 1 if larger_is_better else -1
    scores = [-math.inf if trial.score is None else sign * trial.score for trial in trials]
    return scores.index(max(scores))


def _values(settings: Training, point: Training) -> dict[str, float]:
    """Return what a point of a grid has in place of the settings that have the grid."""
    names = settings.grid.values if isinstance(settings, Finetune) and settings.grid else ()
    return {name: getattr(point, name) for name in names}


def _describe(settings: Training, point: Training) -> str:
    """Return `batch_size 16, learning_rate 3e-05, ` of a point of a grid; empty without one."""
    return "".join(f"{name} {value:g}, " for name, value in _values(settings, point).items())


def _note_auto(settings: Training, chosen: Mapping[str, ChosenSetting], context: TrainContext) -> None:
    """Log the values of settings that were `auto`, and the bounds of epochs."""
    parts = [describe_chosen(chosen)] if chosen else []
    if isinstance(bounds := settings.epochs, EpochBounds):
        parts.append(bounds.text + (" until select stops improving" if bounds.least < bounds.most else ""))
    if parts:
        context.console.note(f"{context.step}: {', '.join(parts)}")


def _chosen_epochs(settings: Training, resolved: Training, result: TrainResult) -> dict[str, ChosenSetting]:
    """Return the number of epochs that a training within bounds had; empty where the recipe gives a number."""
    if settings.epochs != AUTO or not isinstance(resolved.epochs, EpochBounds):
        return {}
    reason = f"{result.ending or 'the most allowed'}, of {resolved.epochs.text}"
    return {"epochs": ChosenSetting(value=result.epochs, reason=reason)}


def reset_weights_builder(model: PreTrainedModel, settings: Training) -> Callable[[int], PreTrainedModel]:
    """Return a function that resets a model in memory to its current weights for every training, whatever the seed."""
    has_several = settings.trial_count > 1
    start = {name: tensor.clone() for name, tensor in named_weights(model).items()} if has_several else None

    def build(seed: int) -> PreTrainedModel:
        if start is not None:
            load_weights(model, start)
        return model

    return build


def delete_work_files(work: Path) -> None:
    """Delete the files of trainings in a work folder, once their result is saved."""
    shutil.rmtree(work / FOLDER, ignore_errors=True)
