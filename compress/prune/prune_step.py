"""The pruning step: score, cut, recover."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress import __version__
from compress.console import Console
from compress.data.encode import bucketed_batches, encode_rows, training_examples
from compress.data.splits.prepare_splits import load_prepared
from compress.data.tokenizer import TextTokenizer
from compress.families import require_prunable
from compress.model_info import FolderInfo, TaskInfo
from compress.models.encoder_parts import family_of, shape_of
from compress.models.load_save import load_model, load_tokenizer, save_model
from compress.prune.prune_ratios import layer_parameters, resolve_ratios
from compress.prune.select_units import select_units
from compress.prune.surgery import cut
from compress.prune.taylor_importance import Loss, measure_importance
from compress.recipe.training_schema import Distill, Prune, Student
from compress.tasks.base import Row
from compress.train.core.distributed import current_processes
from compress.train.core.training_data import fast_tokenizer
from compress.train.distill import distill, distill_from_model, make_distill_objective
from compress.train.distillation.embedding_projection import match_embedding_width
from compress.train.objective import Batch, Objective, TaskObjective
from compress.train.save_trained import TrainedModel

CUT = "cut"
"""Of a work folder: the pruned model before it recovers, so that a killed step goes on with the same one."""

BATCH = 32
"""Examples whose gradients are averaged before importance takes absolute values; 8 or 32 cut alike."""

SCORED = {"losses": {"soft_label": 1.0}, "hard_label": 1.0}
"""The loss whose change importance estimates: the true labels and the teacher's answers."""


def prune(
    student: Path,
    teacher: Path | None,
    data: Path,
    settings: Prune,
    seed: int,
    work: Path,
    *,
    console: Console | None = None,
    track: str | None = None,
    unlabelled_rows: Sequence[Row] = (),
) -> TrainedModel:
    """Leave in ``work`` the model folder of ``student`` with fewer heads and neurons, recovered on ``data``.

    Args:
        student: the model folder to prune.
        teacher: the model folder to recover after; the unpruned student itself where there is none.
        data: a prepared data folder.
        settings: how much to cut, how to score it, how to recover.
        seed: which rows are scored, and the recovery's.
        work: receives the result; what a killed attempt left there is gone on with.
        console: where progress goes.
        track: an experiment tracker for the recovery.
        unlabelled_rows: rows that have no answer but the teacher's, which the recovery reads too.
    """
    console = console or Console("quiet")
    processes = current_processes()
    if processes.is_main and not (work / CUT).is_dir():
        _write_cut(student, teacher, data, settings, seed, work, processes.device, console)
    processes.wait()
    origin = Student(source=str(work / CUT))
    made = distill(
        teacher or student,
        origin,
        data,
        settings.recover,
        seed,
        work,
        step="prune",
        console=console,
        track=track,
        unlabelled_rows=unlabelled_rows,
    )
    processes.wait()  # all have read what is removed now
    if processes.is_main:
        shutil.rmtree(work / CUT)
    return made


def prune_from_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train_rows: Sequence[Row],
    select_rows: Sequence[Row],
    task: TaskInfo,
    settings: Prune,
    *,
    teacher: PreTrainedModel | None = None,
    seed: int = 0,
    work: Path | None = None,
    console: Console | None = None,
    track: str | None = None,
    unlabelled_rows: Sequence[Row] = (),
) -> PreTrainedModel:
    """A pruned copy of ``model``, recovered on canonical rows after ``teacher`` (or after ``model`` itself)."""
    console = console or Console("quiet")
    tokens = fast_tokenizer(model.config, tokenizer)
    if teacher is not None:
        teacher = match_embedding_width(model, teacher, train_rows, task, tokens)
    batches = list(_batches(train_rows, task, tokens, settings, seed, model.device))
    pruned = cut_from_model(model, batches, settings, task, teacher=teacher, console=console)
    if settings.recover is False:
        return pruned
    return distill_from_model(
        teacher or model,
        pruned,
        tokenizer,
        train_rows,
        select_rows,
        task,
        settings.recover,
        seed=seed,
        work=work,
        console=console,
        track=track,
        unlabelled_rows=unlabelled_rows,
    )


def cut_from_model(
    model: PreTrainedModel,
    batches: Sequence[Batch],
    settings: Prune,
    task: TaskInfo,
    *,
    teacher: PreTrainedModel | None = None,
    console: Console | None = None,
) -> PreTrainedModel:
    """A copy of ``model`` without the heads and neurons that matter least on these batches; not recovered."""
    console = console or Console("quiet")
    require_prunable(family_of(model))
    heads, ffn = resolve_ratios(model, settings)
    found = measure_importance(model, batches, _loss(model, teacher, task), console)
    kept_heads = select_units(found.heads, heads, even=settings.even)
    kept_ffn = select_units(found.ffn, ffn, settings.round_to, settings.even)
    pruned = cut(copy.deepcopy(model), kept_heads, kept_ffn)
    left = layer_parameters(pruned) / layer_parameters(model)
    console.note(f"prune: {shape_of(model).text} → {shape_of(pruned).text}, {left:.1%} of the layers' parameters stay")
    return pruned


def _write_cut(
    student: Path,
    teacher: Path | None,
    data: Path,
    settings: Prune,
    seed: int,
    work: Path,
    device: torch.device,
    console: Console,
) -> None:
    """Write the pruned model as a folder, whole or not at all."""
    roles = load_prepared(data)
    task = roles.info.task_info
    model = _on(device, load_model(student, task))
    rows, tokens = roles.rows("train"), TextTokenizer.load(student)
    guide = match_embedding_width(model, load_model(teacher, task), rows, task, tokens) if teacher else None
    batches = list(_batches(rows, task, tokens, settings, seed, device))
    pruned = cut_from_model(model, batches, settings, task, teacher=guide and _on(device, guide), console=console)
    aside = work / f"{CUT}.partial"
    shutil.rmtree(aside, ignore_errors=True)
    info = FolderInfo(step="prune", made_by=f"compress {__version__}", task=task)
    save_model(_on(torch.device("cpu"), pruned), load_tokenizer(student), aside, info)
    aside.rename(work / CUT)


def _batches(
    rows: Sequence[Row], task: TaskInfo, tokens: TextTokenizer, settings: Prune, seed: int, device: torch.device
) -> Iterator[Batch]:
    """As many batches of rows drawn from train as the settings ask for, or all of it where there are fewer."""
    drawn = np.sort(np.random.default_rng(seed).permutation(len(rows))[: BATCH * settings.batches])
    encoded = encode_rows((rows[int(index)] for index in drawn), task, tokens)
    examples = training_examples(encoded, task)
    size = max(1, BATCH * len(examples.lengths) // len(encoded))  # whole rows have several examples each
    for indices in bucketed_batches(examples.lengths, size, seed, epoch=0)[: settings.batches]:
        yield {name: torch.from_numpy(array).to(device) for name, array in examples.batch(indices).items()}


def _loss(model: PreTrainedModel, teacher: PreTrainedModel | None, task: TaskInfo) -> Loss:
    """The task's loss, and beside it the distance to the teacher's answers where there is one."""
    objective: Objective = TaskObjective(task)
    if teacher is not None:
        objective = make_distill_objective(teacher, Distill.model_validate(SCORED), task)(model, 0)
    return lambda pruned, batch: torch.stack(list(objective(pruned, batch).values())).sum()


def _on(device: torch.device, model: PreTrainedModel) -> PreTrainedModel:
    torch.nn.Module.to(model, device)
    return model
