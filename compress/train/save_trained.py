"""Write the model folder of a training step."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress import __version__
from compress.data.splits.prepare_splits import PreparedData, load_prepared
from compress.measure.predict_rows import embed_documents, predict_rows
from compress.model_folder.model_history import LastLayerInfo, LayerMap, PruningInfo, VocabularyInfo
from compress.model_folder.model_info import FolderInfo, TaskInfo
from compress.models.encoder_parts import family_of, shape_of
from compress.models.load_save import save_model
from compress.recipe.field_types import Role
from compress.tasks import kind_of
from compress.train.core.checkpoints import TrainResult
from compress.train.core.distributed import current_processes, returned
from compress.train.core.seed_restarts import delete_work_files
from compress.train.core.training_data import BATCH, fast_tokenizer, predict_function


@dataclass(frozen=True)
class TrainedModel:
    """A model folder written by a training step."""

    info: FolderInfo
    result: TrainResult | None
    """The result of the training; None where nothing was trained."""
    start: NDArray[Any] | None = None
    """Predictions on test of what was fine-tuned: the probe, or the untrained encoder."""


def save_trained_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    work: Path,
    step: str,
    data: Path,
    result: TrainResult | None = None,
    layer_map: LayerMap | None = None,
    augmented: int | None = None,
    pruning: PruningInfo | None = None,
    probe: LastLayerInfo | None = None,
    vocabulary: VocabularyInfo | None = None,
) -> TrainedModel:
    """Write the folder of a model for the task of ``data``, with tuned thresholds; delete work files of the training.

    Of several processes only the main one does this.
    """
    is_main, roles = int(os.environ.get("RANK", "0")) == 0, load_prepared(data)
    task = tune_thresholds(model, tokenizer, roles) if is_main else roles.info.task_info
    info = FolderInfo(
        step=step,
        made_by=f"compress {__version__}",
        task=task,
        shape=shape_of(model),
        inputs=family_of(model).inputs,
        layer_map=layer_map,
        augmented=augmented,
        pruning=pruning,
        training=result,
        probe=probe,
        vocabulary=vocabulary,
    )
    if is_main:
        save_model(model, tokenizer, work, info)
        delete_work_files(work)
    return TrainedModel(info, result)


def tune_thresholds(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, roles: PreparedData) -> TaskInfo:
    """Return the task of ``roles`` with the best thresholds for this model on select; unchanged for kinds without."""
    task, rows = roles.info.task_info, roles.rows("select")
    kind = kind_of(task)
    if not kind.has_threshold(rows):
        return task
    return kind.tune_threshold(predict_role(model, tokenizer, roles, "select", task), kind.gold(rows), task)


def predict_role(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, roles: PreparedData, role: Role, task: TaskInfo
) -> NDArray[Any]:
    """Return a model's predictions on a role, with the thresholds of ``task``."""
    was_training, tokens = model.training, fast_tokenizer(model.config, tokenizer)
    with returned(model):
        nn.Module.to(model, current_processes().device).train(False)
        run = predict_function(model)
        searched = embed_documents(run, roles.documents(role), task, tokens, BATCH)
        predictions, _ = predict_rows(run, roles.rows(role), task, tokens, BATCH, searched)
    model.train(was_training)
    return predictions
