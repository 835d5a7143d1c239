"""Loads checkpoints with a task's head, and writes model folders.

Messages of transformers are suppressed, so everything it would only warn about is checked here: weights that are
missing, of another size, or pickled.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.errors import ModelError
from compress.model_info import FolderInfo, TaskInfo, find_info, write_info
from compress.model_sources import refuse_exported
from compress.models.checkpoint_task import (
    EMBEDDING,
    CheckpointTask,
    checkpoint_task,
    config_for,
    fits_task,
    label_order,
    output_names,
)
from compress.models.embedding_model import POOLINGS, PROJECTION, set_pooling, set_projection
from compress.models.encoder_parts import base_of, family_of, shape_of
from compress.models.fetch import FOREIGN_WEIGHTS, SAFE_WEIGHTS, fetch
from compress.models.heads import HEADS, Head, head_named, head_of
from compress.models.nonuniform_models import match_config_to_weights
from compress.models.sentence_transformers_format import Layout, is_embedding_folder, read_layout, write_layout
from compress.models.silence_transformers import quiet
from compress.tasks import kind_of

Source = Path | str
POOLER = ".pooler."
"""Many checkpoints were trained without a pooler; it is then randomly initialised, like a head."""


TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")


def load(folder: Source) -> PreTrainedModel:
    """Return a model folder as a torch module in eval mode, with the head it was saved with."""
    model = load_model(folder)
    model.train(False)
    return model


def load_model(
    source: Source,
    task: TaskInfo | None = None,
    revision: str | None = None,
    *,
    seed: int = 0,
    console: Console | None = None,
) -> PreTrainedModel:
    """Load a folder, card or hub id in fp32.

    With a task the model gets its head: the saved one where it fits the task (labels are matched by name and put in the
    task's order), else a new one, randomly initialised from ``seed``.
    """
    folder = _local(source, revision)
    config = read_config(folder)
    console = console or Console("quiet")
    _note_pickle(folder, console)
    saved = checkpoint_task(folder, config)
    head = (saved.head or HEADS["encoder"]) if task is None else head_named(kind_of(task).head)
    reused = saved.head is head if task is None else fits_task(saved, task)
    order = label_order(saved, task) if reused and task is not None else []
    layout = _set_outputs(config, saved, task, folder)
    if task is not None and reused and head is EMBEDDING and config.pooling != task.pooling:
        console.note(
            f"{folder} keeps its own pooling, {config.pooling}; the task's, {task.pooling}, applies to plain encoders"
        )
    model, missing = _read(folder, config, head, seed)
    _check_finite(model, folder)
    if layout is not None and missing and (weight := layout.projection()) is not None:
        set_projection(model, weight)
        missing = []
    if reused and missing:
        described = f"as a model for {task.name}" if task else f"as a {type(model).__name__}"
        raise ModelError(f"{folder} is described {described}, but lacks weights of its head: {', '.join(missing)}.")
    if order != sorted(order):
        _reorder_labels(model, order)
    if saved.head is head and not reused:
        _initialise_head(model, seed)
    return model


def load_tokenizer(source: Source, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a folder, card or hub id."""
    folder = _local(source, revision)
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):  # transformers would create an empty one
        raise ModelError(f"{folder} has no tokenizer: expected one of {', '.join(TOKENIZER_FILES)}.")
    try:
        with quiet():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder} has a tokenizer that cannot be read: {_first_line(error)}") from error
    if not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer of {folder} cannot be saved as tokenizer.json, which every runtime here needs."
        )
    return tokenizer


def save_model(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, info: FolderInfo
) -> FolderInfo:
    """Write a model folder: config, safetensors, tokenizer, and compress.json with the model's shape and inputs."""
    info = info.model_copy(update={"shape": shape_of(model), "inputs": family_of(model).inputs})
    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        match_config_to_weights(model).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    if head_of(model) is EMBEDDING:
        write_layout(folder, model, info.task.max_length if info.task else None)
    write_info(folder, info)
    return info


def read_config(folder: Path) -> PreTrainedConfig:
    """Read a folder's config, of a supported family."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder} is not a model folder: it has no config.json.")
    try:
        with quiet():
            config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read: {_first_line(error)}") from error
    family_of(config)
    return config


def fit_head(model: PreTrainedModel, task: TaskInfo) -> None:
    """Set the task's labels and problem type in the config of a model in memory; its head must have as many outputs."""
    head, names = head_named(kind_of(task).head), output_names(task)
    if head_of(model) is not head:
        raise ModelError(
            f"a {type(model).__name__} has no head for {task.name}; expected a class with the suffix {head.suffix}."
        )
    if head is not EMBEDDING and model.config.num_labels != len(names):
        raise ModelError(f"the head has {model.config.num_labels} outputs, expected {len(names)}: {', '.join(names)}.")
    config_for(model.config, task)


def has_task_head(source: Source, task: TaskInfo, revision: str | None = None) -> bool:
    """Return whether a checkpoint already has a head for the task."""
    folder = _local(source, revision)
    return fits_task(checkpoint_task(folder, read_config(folder)), task)


def describe_other_task(folder: Path, task: TaskInfo) -> str | None:
    """Return what a checkpoint's head was trained for if the task cannot use it: a task's name, or head and labels."""
    saved, info = checkpoint_task(folder, read_config(folder)), find_info(folder)
    if saved.head in (None, HEADS["encoder"]) or fits_task(saved, task):
        return None
    if info is not None and info.task is not None:
        return info.task.name
    return None if saved.head is EMBEDDING else f"{saved.head.name}: {', '.join(saved.names)}"


def saved_embedding_size(source: Source, revision: str | None = None) -> int | None:
    """Return the width of a checkpoint's embeddings; None if it is not an embedding model."""
    folder = _local(source, revision)
    config = read_config(folder)
    saved = checkpoint_task(folder, config)
    if saved.head is not EMBEDDING:
        return None
    _set_outputs(config, saved, None, folder)
    return int(config.sentence_size or config.hidden_size)


def _local(source: Source, revision: str | None) -> Path:
    """Return the local folder of a source; a Path is a folder, a string may also be a card or hub id."""
    return source if isinstance(source, Path) else fetch(source, revision)


def _set_outputs(config: PreTrainedConfig, saved: CheckpointTask, task: TaskInfo | None, folder: Path) -> Layout | None:
    """Set the task's outputs in the config; return the layout of a folder of sentence-transformers.

    An embedding model keeps its own pooling and projection; a plain encoder gets the task's pooling.
    """
    if task is not None:
        config_for(config, task)
    elif saved.head is not EMBEDDING:
        config.num_labels = max(1, len(saved.names))
    if (saved.head if task is None else head_named(kind_of(task).head)) is not EMBEDDING:
        return None
    layout = read_layout(folder) if saved.head is EMBEDDING and is_embedding_folder(folder) else None
    if layout is not None:
        set_pooling(config, layout.pooling, layout.size)
    elif saved.head is not EMBEDDING or not hasattr(config, "pooling"):
        set_pooling(config, task.pooling if task else POOLINGS[0])
    return layout


def _read(folder: Path, config: PreTrainedConfig, head: Head, seed: int) -> tuple[PreTrainedModel, list[str]]:
    """Return the model with this head, and the head's missing weights, which are initialised from the seed."""
    weights = _weights(folder)
    try:
        with quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, report = head.auto.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                use_safetensors=weights == SAFE_WEIGHTS,
                weights_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except pickle.UnpicklingError as error:  # its own message suggests to execute the file
        raise ModelError(f"{folder / weights} contains more than plain tensors, so it is not loaded.") from error
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{folder / weights} cannot be read: {_first_line(error)}") from error
    return model, _missing_head_weights(model, report, folder)


def _check_finite(model: PreTrainedModel, folder: Path) -> None:
    """Refuse NaN and infinite weights: training with them gives nothing else."""
    broken = [name for name, weight in model.named_parameters() if not bool(torch.isfinite(weight).all())]
    if broken:
        shown = ", ".join(broken[:3]) + (" …" if len(broken) > 3 else "")
        raise ModelError(
            f"{folder} has weights that are NaN or infinite, in {shown}.",
            hint="its training diverged or the file is damaged; use an earlier checkpoint or another model",
        )


def _missing_head_weights(model: PreTrainedModel, report: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the head's weights that the checkpoint lacks; missing encoder weights are an error."""
    missing = set(report["missing_keys"]) | {entry[0] for entry in report["mismatched_keys"]}
    in_encoder = missing & _encoder_names(model)
    encoder = sorted(name for name in in_encoder if POOLER not in f".{name}")
    if encoder:
        shown = ", ".join(encoder[:3]) + (" …" if len(encoder) > 3 else "")
        raise ModelError(
            f"{folder} lacks {len(encoder)} weights of the encoder, or has them in another size: {shown}.",
            hint="the config.json beside them describes another model",
        )
    return sorted(missing - in_encoder)


def _encoder_names(model: PreTrainedModel) -> set[str]:
    base = base_of(model)
    if base is model:
        return {name for name, _ in model.named_parameters()} - {PROJECTION}
    return {f"{model.base_model_prefix}.{name}" for name, _ in base.named_parameters()}


def _head_modules(model: PreTrainedModel) -> list[nn.Module]:
    base = base_of(model)
    return [] if base is model else [child for _, child in model.named_children() if child is not base]


def _initialise_head(model: PreTrainedModel, seed: int) -> None:
    """Initialise the weights of a head that was trained for another task."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in (inner for child in _head_modules(model) for inner in child.modules()):
            for parameter in module.parameters(recurse=False):
                parameter._is_hf_initialized = False  # type: ignore[attr-defined]
            model._init_weights(module)  # type: ignore[no-untyped-call]


def _reorder_labels(model: PreTrainedModel, order: Sequence[int]) -> None:
    """Reorder the rows of the last linear layer to the task's order of labels."""
    modules = [inner for child in _head_modules(model) for inner in child.modules()]
    last = [module for module in modules if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        last.weight.copy_(last.weight[list(order)])
        if last.bias is not None:
            last.bias.copy_(last.bias[list(order)])


def _weights(folder: Path) -> str:
    """Return the name of the weights file, safetensors first."""
    if (folder / SAFE_WEIGHTS).is_file() or (folder / f"{SAFE_WEIGHTS}.index.json").is_file():
        return SAFE_WEIGHTS
    if (folder / FOREIGN_WEIGHTS).is_file():
        return FOREIGN_WEIGHTS
    refuse_exported(folder)
    raise ModelError(f"{folder} has no weights: expected {SAFE_WEIGHTS}.")


def _note_pickle(folder: Path, console: Console) -> None:
    if _weights(folder) == FOREIGN_WEIGHTS:
        console.warn(
            f"{folder / FOREIGN_WEIGHTS} is a pickle file; it is read as plain tensors only and saved as safetensors."
        )


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
