"""Fine-tuning of a teacher on the task, unless it already has a head for it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.errors import ModelError, UsageError
from compress.model_folder.model_history import LastLayerInfo
from compress.model_folder.model_info import TaskInfo
from compress.model_shapes import shape_of_folder
from compress.models.fetch import fetch
from compress.models.heads import EMBEDDING, head_for
from compress.models.load_save import fit_head, has_task_head, load_model, load_tokenizer, read_config
from compress.models.nonuniform_models import POOLED
from compress.recipe.training_schema import Finetune
from compress.tasks import kind_of
from compress.tasks.base import Row
from compress.train.core import training_data
from compress.train.core.auto_settings import resolve_auto
from compress.train.core.distributed import current_processes
from compress.train.core.last_layer_effort import fit_budget
from compress.train.core.seed_restarts import TrainContext, context_in_memory, reset_weights_builder, train_best
from compress.train.core.training_data import TrainingData
from compress.train.frozen_encoder import fit_frozen, train_bilstm
from compress.train.label_scale import label_scale
from compress.train.last_layer_fit import START, WHOLE
from compress.train.objective import TaskObjective, class_weights
from compress.train.save_trained import TrainedModel, predict_role, save_trained_model, tune_thresholds
from compress.train.start_models import StartModels


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
    unchanged unless `settings.reuse` is false, and then trained further; a new head starts from a probe. `False` for
    the settings disables training.
    """
    console = console or Console("quiet")
    folder = fetch(source, revision, cards)
    roles, tokenizer = load_prepared(data), load_tokenizer(folder)
    task = roles.info.task_info
    fits = has_task_head(folder, task)
    if settings is False and not fits:
        raise _no_head(source, task)
    if settings is False or (fits and settings.reuse):
        console.note(f"{source} already has a head for this task: used unchanged")
        return save_trained_model(load_model(folder, task, console=console), tokenizer, work, "finetune", data)
    if fits and not settings.features:
        _check_keeps_head(settings, source, task.name)
    tokens = training_data.fast_tokenizer(read_config(folder), tokenizer)
    rows = roles.rows("train"), roles.rows("select")
    encoded = training_data.from_rows(*rows, task, tokens, console, roles.documents("select"))
    context = TrainContext("finetune", seed, work, console, track)
    objective = TaskObjective(task, class_weights(settings, rows[0], task), label_scale(rows[0], task))
    pooling = None if fits else settings.pooling
    score_on_test = (lambda model: _score_on_test(model, tokenizer, roles)) if settings.seeds > 1 else None
    if settings.head == "bilstm":
        heads = StartModels(folder, objective, None, False, encoded.train, context, START, settings.features, "bilstm")
        model, result = train_bilstm(heads, encoded, settings, score_on_test)
        return save_trained_model(model, tokenizer, work, "finetune", data, result)
    if settings.is_frozen:
        fitted = StartModels(folder, objective, pooling, True, encoded.train, context, WHOLE, settings.features)
        model, result, probe = fit_frozen(fitted, encoded)
        return save_trained_model(model, tokenizer, work, "finetune", data, result, probe=probe)
    probed = settings.init == "probe" and not fits
    limit = replace(START, operations=probe_operations(folder, settings, encoded, pooling, task)) if probed else START
    starts = StartModels(folder, objective, pooling, probed, encoded.train, context, limit)
    start, first_probe = _describe_start(starts, tokenizer, roles) if probed else (None, None)
    model, result = train_best(
        lambda seed: starts.build(seed)[0],
        lambda model, seed: objective,
        encoded,
        settings,
        context,
        start_competes=fits or first_probe is not None or head_for(task) is EMBEDDING,
        score_on_test=score_on_test,
    )
    trained = save_trained_model(model, tokenizer, work, "finetune", data, result, probe=first_probe)
    return replace(trained, start=start)


def probe_operations(
    folder: Path, settings: Finetune, data: TrainingData, pooling: str | None, task: TaskInfo
) -> float | None:
    """Return the operations that a probe may take before the training of ``folder``; None where its shape is unknown.

    Where the pooling is to be chosen, two probes share them.
    """
    shape, lengths, rows = (
        shape_of_folder(folder),
        data.train.example_lengths.astype(np.float64),
        len(data.train.lengths),
    )
    if shape is None:
        return None
    resolved, _ = resolve_auto(settings.points()[0], data.facts())
    probes = 2 if pooling == "auto" and head_for(task) is POOLED else 1
    return fit_budget(resolved, shape, rows, lengths.sum() / rows, (lengths**2).sum() / rows, probes)


def _no_head(source: str, task: TaskInfo) -> ModelError:
    expected = f"labels: {', '.join(task.labels)}" if task.labels else task.kind
    message = f"{source} has no head for {task.name} ({expected})."
    return ModelError(message, hint="remove `finetune: false` to train one")


def _check_keeps_head(settings: Finetune, source: str, task: str) -> None:
    """Refuse settings of a new head for a checkpoint whose own head stays."""
    defaults = Finetune()
    for name in ("pooling", "init"):
        if (value := getattr(settings, name)) != getattr(defaults, name):
            raise ModelError(
                f"finetune.{name}: {value} is for a new head, and {source} keeps the one that it has for {task}.",
                hint=f"leave {name} out, or name the encoder that it was made of",
            )


def _score_on_test(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, roles: PreparedData) -> float | None:
    """Return a model's score on test in the primary metric (on the main process), with thresholds tuned on select."""
    if not current_processes().is_main:
        return None
    task = tune_thresholds(model, tokenizer, roles)
    kind, predictions = kind_of(task), predict_role(model, tokenizer, roles, "test", task)
    score = kind.score(predictions, kind.gold(roles.rows("test")), task)[task.metric]
    return score if math.isfinite(score) else None


def _describe_start(
    starts: StartModels, tokenizer: PreTrainedTokenizerBase, roles: PreparedData
) -> tuple[NDArray[Any] | None, LastLayerInfo | None]:
    """Return the predictions on test before training (on the main process), and what the head was fitted with."""
    model, probe = starts.build(starts.context.seed)
    if probe is not None:
        which = f" ({probe.pooling})" if probe.pooling else ""
        starts.context.console.note(
            f"finetune: starts from a probe{which} of {probe.rows:,} rows, cross-validated loss {probe.loss:.3f}"
        )
    if not current_processes().is_main:
        return None, probe
    return predict_role(model, tokenizer, roles, "test", tune_thresholds(model, tokenizer, roles)), probe


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
    documents: Sequence[Row] = (),
) -> PreTrainedModel:
    """Train ``model``, which has a head for ``task``, on canonical rows and return it with its best weights.

    Its weights are the start, so nothing is probed. With a ``work`` folder a killed training resumes from there.
    Restarts begin with the same weights and differ in the order of batches and in dropout. ``documents``: those that
    queries of ``select_rows`` are searched in, for retrieval.
    """
    settings = settings or Finetune()
    if settings.is_frozen:
        raise UsageError(
            "a frozen encoder is a checkpoint that gets a head; a model in memory has one: use fit_last_layer"
        )
    fit_head(model, task)
    tokens = training_data.fast_tokenizer(model.config, tokenizer)
    with context_in_memory("finetune", seed, work, console, track) as context:
        data = training_data.from_rows(train_rows, select_rows, task, tokens, context.console, documents)
        build = reset_weights_builder(model, settings)
        losses = TaskObjective(task, class_weights(settings, train_rows, task), label_scale(train_rows, task))
        trained, _ = train_best(build, lambda model, seed: losses, data, settings, context)
    return trained
