"""Decision thresholds of a trained model: tuned on select, stored in compress.json, inherited by exports."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.data.splits.prepare_splits import PreparedData
from compress.measure.predict_rows import embed_documents, predict_rows
from compress.model_info import TaskInfo
from compress.tasks import kind_of
from compress.train.core.distributed import current_processes
from compress.train.core.training_data import fast_tokenizer
from compress.train.evaluate import BATCH, predict_function


def tune_thresholds(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, roles: PreparedData) -> TaskInfo:
    """Return the task of ``roles`` with the best thresholds for this model on select; unchanged for kinds without."""
    task, rows = roles.info.task_info, roles.rows("select")
    kind = kind_of(task)
    if not kind.has_threshold(rows):
        return task
    device, was_training = model.device, model.training
    nn.Module.to(model, current_processes().device).train(False)
    tokens = fast_tokenizer(model.config, tokenizer)
    run = predict_function(model)
    searched = embed_documents(run, roles.documents("select"), task, tokens, BATCH)
    answers, _ = predict_rows(run, rows, task, tokens, BATCH, searched)
    nn.Module.to(model, device).train(was_training)
    return kind.tune_threshold(answers, kind.gold(rows), task)
