"""What a checkpoint says it answers, whether that is what a task asks, and how a config says what a task asks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from compress.model_info import TaskInfo, find_info
from compress.models.encoder_parts import family_of
from compress.models.heads import HEADS, Head, head_named, head_of_class
from compress.models.sentence_transformers_format import is_embedding_folder
from compress.tasks import kind_of

EMBEDDING, SPANS = HEADS["sentence-embedding"], HEADS["question-answering"]
HF_PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")
"""The only problems that transformers lets a config name."""
EMBEDDING_KEYS = ("pooling", "sentence_size")
CHOICE_SUFFIX = "ForMultipleChoice"


@dataclass(frozen=True)
class CheckpointTask:
    """The head of a checkpoint."""

    head: Head | None
    """None where it is none of ours (a pretraining head)."""
    names: tuple[str, ...] = ()
    """What each output stands for."""
    problem: str | None = None
    """What its outputs were trained for, where it says so."""


def checkpoint_task(folder: Path, config: PreTrainedConfig) -> CheckpointTask:
    """From compress.json, the files of sentence-transformers, or the class that the config names."""
    info = find_info(folder)
    if info is not None and info.task is not None:
        kind = kind_of(info.task)
        return CheckpointTask(head_named(kind.head), label_names(config), kind.problem)
    if is_embedding_folder(folder):
        return CheckpointTask(EMBEDDING)
    classes = config.architectures or ()
    if any(name.endswith(CHOICE_SUFFIX) for name in classes) and family_of(config).choice_head_is_sequence_head:
        return CheckpointTask(HEADS["sequence-classification"], ("score",), "choice")
    head = next(filter(None, (head_of_class(name) for name in classes)), None)
    return CheckpointTask(head, label_names(config), config.problem_type)


def fits_task(saved: CheckpointTask, task: TaskInfo) -> bool:
    """Whether a checkpoint answers the task: the same labels by name, or as many numbers that mean the same."""
    kind = kind_of(task)
    if saved.head is not head_named(kind.head):
        return False
    if saved.head in (EMBEDDING, SPANS):
        return True
    if not task.labels:
        return len(saved.names) == kind.output_count(task) and saved.problem in (None, kind.problem)
    return sorted(map(plain, saved.names)) == sorted(map(plain, output_names(task)))


def label_order(saved: CheckpointTask, task: TaskInfo) -> list[int]:
    """Where each output that the task asks for stands in the checkpoint's head; nothing where outputs have no names."""
    places = {plain(name): index for index, name in enumerate(saved.names)}
    return [places[plain(name)] for name in output_names(task)] if task.labels else []


def output_names(task: TaskInfo) -> tuple[str, ...]:
    """What the head's outputs stand for: the labels or one number, and how much a window has to say."""
    kind = kind_of(task)
    if kind.head == SPANS.name:
        return ("start", "end")
    names, outputs = task.labels or ("score",), kind.output_count(task)
    return (*names, *["weight"] * (outputs - len(names)))[:outputs]


def config_for(config: PreTrainedConfig, task: TaskInfo) -> PreTrainedConfig:
    """The config with the task's outputs, and with its loss where transformers knows it."""
    kind = kind_of(task)
    if kind.head != EMBEDDING.name:
        names = output_names(task)
        config.id2label = dict(enumerate(names))
        config.label2id = {name: index for index, name in enumerate(names)}
        for name in set(EMBEDDING_KEYS) & set(vars(config)):
            delattr(config, name)
    config.update({"problem_type": kind.problem if kind.problem in HF_PROBLEM_TYPES else None})
    return config


def label_names(config: PreTrainedConfig) -> tuple[str, ...]:
    """The classes of a checkpoint's head, in order."""
    named = {int(index): str(label) for index, label in (config.id2label or {}).items()}
    return tuple(named[index] for index in sorted(named))


def plain(label: Any) -> str:
    """How labels are compared."""
    return str(label).strip().casefold()
