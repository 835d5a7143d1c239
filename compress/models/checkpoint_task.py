"""The task a checkpoint was trained for, whether it fits a recipe's task, and how a config describes a task."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from compress.errors import CompressError, ModelError
from compress.model_folder.model_info import INFO_FILE, TaskInfo, find_info
from compress.model_folder.sentence_transformers_files import is_embedding_folder
from compress.models.encoder_parts import family_of
from compress.models.heads import HEADS, Head, head_for, head_of_class
from compress.tasks import kind_of

EMBEDDING, SPANS = HEADS["sentence-embedding"], HEADS["question-answering"]
HF_PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")
"""The problem types that transformers allows in a config."""
CHOICE_SUFFIX = "ForMultipleChoice"
EMBEDDING_KEYS = {"pooling", "sentence_size", "sentence_bias", "sentence_activation", "sentence_normalize"}
"""Config keys of embedding models alone."""


@dataclass(frozen=True)
class CheckpointTask:
    """The head of a checkpoint and what it was trained for."""

    head: Head | None
    """None for heads that are not supported (pretraining heads)."""
    names: tuple[str, ...] = ()
    """The name of each output."""
    problem: str | None = None
    """The problem type its outputs were trained for, if recorded."""


def checkpoint_task(folder: Path, config: PreTrainedConfig) -> CheckpointTask:
    """Return a folder's task: from compress.json, sentence-transformers' files, or the class named in the config."""
    info, classes = find_info(folder), config.architectures or ()
    if info is not None and info.task is not None:
        return _recorded_task(folder, info.task, config)
    if is_embedding_folder(folder):
        return CheckpointTask(EMBEDDING)
    if any(name.endswith(CHOICE_SUFFIX) for name in classes) and family_of(config).choice_head_is_sequence_head:
        return CheckpointTask(HEADS["sequence-classification"], ("score",), "choice")
    head = next(filter(None, (head_of_class(name) for name in classes)), None)
    return CheckpointTask(head, label_names(config), config.problem_type)


def _recorded_task(folder: Path, task: TaskInfo, config: PreTrainedConfig) -> CheckpointTask:
    """Return the task in compress.json; raise `ModelError` if the class named in the config has another head."""
    path = folder / INFO_FILE
    try:
        kind = kind_of(task)
    except CompressError as error:
        raise ModelError(f"{path}: {error.message}", hint=error.hint) from error
    head = HEADS[kind.head]
    for name in config.architectures or ():
        if head_of_class(name) not in (None, head, HEADS["encoder"]):
            raise ModelError(
                f"{path} describes a {task.kind} model ({head.name}), but the model in this folder is a {name}.",
                hint="the compress.json of another folder was copied here, or it was edited",
            )
    return CheckpointTask(head, label_names(config), kind.problem)


def fits_task(saved: CheckpointTask, task: TaskInfo) -> bool:
    """Return whether a checkpoint's head fits the task: the same label names, or as many outputs of the same type."""
    kind = kind_of(task)
    if saved.head is not head_for(task):
        return False
    if saved.head in (EMBEDDING, SPANS):
        return True
    if not task.labels:
        return len(saved.names) == kind.output_count(task) and saved.problem in (None, kind.problem)
    return _indices_of_labels(saved, task) is not None


def label_order(saved: CheckpointTask, task: TaskInfo) -> list[int]:
    """Return the index in the checkpoint's head of each of the task's outputs; empty where outputs have no names."""
    return (_indices_of_labels(saved, task) or []) if task.labels else []


def _indices_of_labels(saved: CheckpointTask, task: TaskInfo) -> list[int] | None:
    """Return the index in the checkpoint's head of each label; None unless its names are the task's.

    Case and surrounding space make no difference, unless labels differ in nothing else.
    """
    for compared in (str, normalize_label):
        indices = {compared(name): index for index, name in enumerate(saved.names)}
        wanted = [compared(name) for name in output_names(task)]
        if len(indices) == len(saved.names) and sorted(indices) == sorted(wanted):
            return [indices[name] for name in wanted]
    return None


def output_names(task: TaskInfo) -> tuple[str, ...]:
    """Return the names of the head's outputs: the labels or one score, and the weight of a window where it has one."""
    kind = kind_of(task)
    if kind.head == SPANS.name:
        return ("start", "end")
    names, outputs = task.labels or ("score",), kind.output_count(task)
    further = "weight" if "weight" not in names else "weight of a window"
    return (*names, *[further] * (outputs - len(names)))[:outputs]


def config_for(config: PreTrainedConfig, task: TaskInfo) -> PreTrainedConfig:
    """Set the task's outputs in a config, and its problem type where transformers has it; returns the config."""
    kind = kind_of(task)
    if kind.head != EMBEDDING.name:
        names = output_names(task)
        config.id2label = dict(enumerate(names))
        config.label2id = {name: index for index, name in enumerate(names)}
        for name in EMBEDDING_KEYS & set(vars(config)):
            delattr(config, name)
    config.update({"problem_type": kind.problem if kind.problem in HF_PROBLEM_TYPES else None})
    return config


def label_names(config: PreTrainedConfig) -> tuple[str, ...]:
    """Return the names of a checkpoint's outputs, in order."""
    labels = {int(index): str(label) for index, label in (config.id2label or {}).items()}
    return tuple(labels[index] for index in sorted(labels))


def normalize_label(label: Any) -> str:
    """Return a label as it is compared: without surrounding space or case."""
    return str(label).strip().casefold()
