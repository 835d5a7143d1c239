"""Trainings on a frozen encoder, which runs once for each row: of the last layer alone, or of a BiLSTM.

The BiLSTM reads the states of the encoder's last four layers, from disk: the paper's feature-based use for tags.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.batch_arrays import INDEX
from compress.console import Console
from compress.data.encode import batches_by_length
from compress.errors import ModelError
from compress.model_folder.model_history import EvaluationInfo, LastLayerInfo
from compress.model_folder.model_info import TaskInfo
from compress.models.encoder_parts import base_of, family_of
from compress.models.last_layers_head import LastLayersHead, last_layers
from compress.recipe.training_schema import FEATURE_LAYERS, Finetune
from compress.storage.atomic_write import sync
from compress.train.core.checkpoints import TrainResult
from compress.train.core.distributed import current_processes, returned
from compress.train.core.seed_restarts import FOLDER, train_best
from compress.train.core.training_data import TrainingData
from compress.train.objective import TASK, Batch, Examples, Losses, TaskObjective
from compress.train.start_models import StartModels
from compress.train.teacher_cache.cache_file import CachedTensor, TensorFormat


def fit_frozen(starts: StartModels, data: TrainingData) -> tuple[PreTrainedModel, TrainResult, LastLayerInfo]:
    """Return the encoder of ``starts``, unchanged, with the last layer that fits it best, and its score on select."""
    context, began = starts.context, time.monotonic()
    model, probe = starts.build(context.seed)
    if probe is None:
        raise ModelError(
            f"{starts.folder} has no linear layer to fit for {data.task.name}.", hint="leave out method: frozen"
        )
    score = _score(model, data)
    total = len(data.train.lengths)
    shown = f"{probe.rows:,} rows" if probe.rows >= total else f"{probe.rows:,} of {total:,} rows, which fit in memory"
    context.console.note(
        f"{context.step}: the last layer was fitted to {shown}"
        + "".join(f" ({read})" for read in (probe.features, probe.pooling) if read)
        + f", cross-validated loss {probe.loss:.3f}"
        + ("" if score is None else f", {score:.4f} on select")
    )
    evaluation = EvaluationInfo(update=0, epoch=0.0, score=score, losses={TASK: float(f"{probe.loss:.6g}")})
    seconds = time.monotonic() - began
    result = TrainResult(
        seed=context.seed,
        updates=0,
        rows=probe.rows,
        precision="fp32",
        score=score,
        best_at=0,
        history=(evaluation,),
        seconds=seconds,
        all_seconds=seconds,
    )
    return model, result, probe


def _score(model: PreTrainedModel, data: TrainingData) -> float | None:
    """Return the score on select of the main process; None without select."""
    if data.evaluate is None:
        return None
    processes = current_processes()
    with returned(model), torch.no_grad():
        nn.Module.to(model, processes.device).train(False)
        score = data.evaluate(model) if processes.is_main else 0.0
    return processes.from_main(score)


class HeadObjective(TaskObjective):
    """The task's loss of a head that reads stored features in place of its encoder."""

    def __init__(self, task: TaskInfo, features: EncoderFeatures) -> None:
        super().__init__(task)
        self.features = features

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Compute the task's loss."""
        assert isinstance(model, LastLayersHead)
        features = self.features(batch).to(next(model.bilstm.parameters()).dtype)
        outputs = model.read(features, batch["attention_mask"])
        return {TASK: self.loss_of(outputs, batch)}


def train_bilstm(
    starts: StartModels,
    data: TrainingData,
    settings: Finetune,
    score_on_test: Callable[[PreTrainedModel], float | None] | None = None,
) -> tuple[PreTrainedModel, TrainResult]:
    """Return the encoder of ``starts``, unchanged, with the best head on select of all seeds and points of the grid."""
    context = starts.context
    path = context.work / FOLDER / "features.values"
    features = EncoderFeatures(starts.build(context.seed)[0], data.train, path, context.console, context.step)
    return train_best(
        lambda seed: _frozen_encoder(starts.build(seed)[0]),
        lambda model, seed: HeadObjective(data.task, features),
        data,
        settings,
        context,
        start_competes=False,
        score_on_test=score_on_test,
    )


def _frozen_encoder(model: PreTrainedModel) -> PreTrainedModel:
    base_of(model).requires_grad_(False)
    return model


BATCH = 64


class EncoderFeatures:
    """The features of training examples, in a file that all processes read.

    A training that goes on after a kill reads the file that is there.
    """

    def __init__(self, model: PreTrainedModel, examples: Examples, path: Path, console: Console, label: str) -> None:
        """Encode all ``examples`` on the main process, and store them at ``path``; ``label`` names the progress."""
        processes, ends = current_processes(), np.cumsum(examples.example_lengths)
        shape = (FEATURE_LAYERS * int(model.config.hidden_size),)
        form = TensorFormat(dtype="float32", shape=shape, per_token=True, examples=len(ends))
        if processes.is_main and not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            begun = path.with_name(f".{path.name}.new")
            with returned(model):
                nn.Module.to(model, processes.device).train(False)
                _write(model, examples, CachedTensor(begun, form, ends, create=True), console, label)
            sync(begun)
            begun.replace(path)
        processes.wait()
        self._stored = CachedTensor(path, form, ends)

    def __deepcopy__(self, memo: dict[int, Any]) -> EncoderFeatures:
        """Return the features themselves: replicas of a training read the same file."""
        return self

    def __call__(self, batch: Batch) -> Tensor:
        """Return the features of a batch's examples (examples, tokens, 4 · hidden)."""
        ids = batch["input_ids"]
        return self._stored.read(batch[INDEX].cpu().numpy(), ids.shape[1]).to(ids.device)


def _write(model: PreTrainedModel, examples: Examples, stored: CachedTensor, console: Console, label: str) -> None:
    """Write the features of all examples."""
    names = family_of(model).inputs
    with torch.no_grad(), console.progress(len(stored), f"{label}: encode", "rows") as progress:
        for indices in batches_by_length(examples.example_lengths, BATCH):
            arrays = {name: torch.from_numpy(array) for name, array in examples.batch(indices).items()}
            inputs = {name: arrays[name].to(model.device) for name in names}
            states = base_of(model)(**inputs, output_hidden_states=True).hidden_states
            stored.write(indices, last_layers(states))
            progress.advance(len(indices))
