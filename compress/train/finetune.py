"""Fine-tuning of a teacher on the task, unless it already has a head for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.errors import ModelError
from compress.model_info import TaskInfo
from compress.models.fetch import fetch
from compress.models.load_save import (
    fit_head,
    has_task_head,
    load_model,
    load_tokenizer,
    read_config,
)
from compress.recipe.training_schema import Finetune
from compress.tasks.base import Row
from compress.train.class_weights import class_weights
from compress.train.core import training_data
from compress.train.core.seed_restarts import TrainContext, context_in_memory, reset_weights_builder, train_best
from compress.train.objective import TaskObjective
from compress.train.save_trained import TrainedModel, save_trained_model


def finetune(
    source: str,
    data: Path,
    settings: Finetune | Literal[False],
    seed: int,
    work: Path,
    *,
    revision: str | None = None,
    cards: Sequence[Path] = (),
    console: Console | None = None,
    track: str | None = None,
) -> TrainedModel:
    """Write the model folder of a teacher for the task of ``data`` to ``work``.

    ``source`` is a card, a folder or a hub id. A checkpoint that already has a head for the task is used
    unchanged unless `settings.reuse` is false; `False` for the settings disables training.
    """
    console = console or Console("quiet")
    folder = fetch(source, revision, cards)
    roles, tokenizer = load_prepared(data), load_tokenizer(folder)
    task = roles.info.task_info
    fits = has_task_head(folder, task)
    if settings is False and not fits:
        expected = f"labels: {', '.join(task.labels)}" if task.labels else task.kind
        raise ModelError(
            f"{source} has no head for {task.name} ({expected}).",
            hint="remove `finetune: false` to train one",
        )
    if settings is False or (fits and settings.reuse):
        console.note(f"{source} already has a head for this task: used unchanged")
        return save_trained_model(load_model(folder, task, console=console), tokenizer, work, "finetune", data)
    pooling = None if settings.pooling == "auto" else settings.pooling
    tokens = training_data.fast_tokenizer(read_config(folder), tokenizer)
    rows = roles.rows("train"), roles.rows("select")
    weights = class_weights(settings, rows[0], task)
    model, result = train_best(
        lambda seed: load_model(folder, task, seed=seed, console=console, pooling=pooling),
        lambda model, seed: TaskObjective(task, weights),
        training_data.from_rows(*rows, task, tokens, console, roles.documents("select")),
        settings,
        TrainContext("finetune", seed, work, console, track),
    )
    return save_trained_model(model, tokenizer, work, "finetune", data, result)


def finetune_from_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train_rows: Sequence[Row],
    select_rows: Sequence[Row],
    task: TaskInfo,
    settings: Finetune | None = None,
    *,
    seed: int = 0,
    work: Path | None = None,
    console: Console | None = None,
    track: str | None = None,
) -> PreTrainedModel:
    """Train ``model``, which has a head for ``task``, on canonical rows and return it with its best weights.

    With a ``work`` folder a killed training resumes from there. Restarts begin with the same weights and differ in the
    order of batches and in dropout.
    """
    settings = settings or Finetune()
    fit_head(model, task)
    tokens = training_data.fast_tokenizer(model.config, tokenizer)
    with context_in_memory("finetune", seed, work, console, track) as context:
        data = training_data.from_rows(train_rows, select_rows, task, tokens, context.console)
        build = reset_weights_builder(model, settings)
        weights = class_weights(settings, train_rows, task)
        trained, _ = train_best(build, lambda model, seed: TaskObjective(task, weights), data, settings, context)
    return trained
