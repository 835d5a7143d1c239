"""What a training works on: encoded rows of train, and a score on select."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from compress.console import Console
from compress.data.batches import Encoded, encode_rows
from compress.data.roles import load_roles
from compress.data.tokens import Tokens
from compress.folder import TaskInfo
from compress.models.quiet import quiet
from compress.tasks import kind_of, primary_metric
from compress.tasks.kind import Row
from compress.train.evaluate import evaluator
from compress.train.loop import Evaluate


@dataclass(frozen=True)
class Material:
    """Encoded rows and the way to tell whether a model got better."""

    task: TaskInfo
    train: Encoded
    evaluate: Evaluate | None
    larger_is_better: bool


def from_rows(
    train: Sequence[Row], select: Sequence[Row], task: TaskInfo, tokens: Tokens, console: Console
) -> Material:
    """Encode canonical rows; without select rows nothing is evaluated and the last weights are kept."""
    kind = kind_of(task)
    encoded = encode_rows(train, kind, task, tokens)
    if encoded.truncated:
        console.note(f"{encoded.truncated:.1%} of the training rows are longer than {task.max_length} pieces and cut")
    evaluate = evaluator(encode_rows(select, kind, task, tokens), select, task) if len(select) else None
    return Material(task, encoded, evaluate, primary_metric(task).larger_is_better)


def from_data(data: Path, tokens: Tokens, console: Console) -> Material:
    """Encode the roles of a prepared data folder."""
    roles = load_roles(data)
    return from_rows(roles.rows("train"), roles.rows("select"), roles.info.task_info, tokens, console)


def tokens_of(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> Tokens:
    """The light tokenizer of a model, by way of the files that its folder will have (it may have come with others)."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return Tokens.load(Path(folder))
