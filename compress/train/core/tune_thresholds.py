"""The thresholds of a trained model: found on select, kept in its compress.json, and inherited by its exports."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.data.splits.prepare_splits import PreparedData
from compress.measure.predict_rows import embed_documents, predict_rows
from compress.model_info import TaskInfo
from compress.tasks import kind_of
from compress.train.core.distributed import Processes
from compress.train.core.training_data import fast_tokenizer
from compress.train.evaluate import BATCH, predict_function


def tune_thresholds(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, roles: PreparedData) -> TaskInfo:
    """The task of ``roles`` with what is best for this model on select; as it is where nothing is to be tuned."""
    task, rows = roles.info.task_info, roles.rows("select")
    kind = kind_of(task)
    if not kind.has_threshold(rows):
        return task
    device, was_training = model.device, model.training
    nn.Module.to(model, Processes().device).train(False)
    tokens = fast_tokenizer(model.config, tokenizer)
    run = predict_function(model)
    searched = embed_documents(run, roles.documents("select"), task, tokens, BATCH)
    answers, _ = predict_rows(run, rows, task, tokens, BATCH, searched)
    nn.Module.to(model, device).train(was_training)
    return kind.tune_threshold(answers, kind.gold(rows), task)
