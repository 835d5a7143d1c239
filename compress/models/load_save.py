"""Loads checkpoints with a task's head, and writes model folders; gives a tokenizer another tokenizer.json."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from compress.console import Console
from compress.errors import ModelError
from compress.model_folder.cascade_info import CASCADE_FILE, FIRST, THEN
from compress.model_folder.model_info import FolderInfo, TaskInfo, find_info, write_info
from compress.model_folder.model_readme import write_readme
from compress.model_folder.sentence_transformers_files import is_embedding_folder, list_modules, write_settings
from compress.model_folder.tokenizer_files import write_tokenizer_files
from compress.models.checkpoint_task import (
    EMBEDDING,
    CheckpointTask,
    checkpoint_task,
    config_for,
    fits_task,
    label_order,
    output_names,
)
from compress.models.embedding_model import POOLINGS, set_pooling, set_projection
from compress.models.encoder_parts import base_of, family_of, shape_of
from compress.models.fetch import fetch
from compress.models.heads import HEADS, Head, head_for, head_of, head_of_class
from compress.models.nonuniform_models import (
    POOLED,
    match_config_to_weights,
    reads_features,
    with_head_features,
    with_head_pooling,
)
from compress.models.read_checkpoint import (
    POOLER,
    check_finite,
    first_line,
    missing_head_weights,
    quiet,
    read_checkpoint,
)
from compress.models.sentence_transformers_format import Layout, read_layout, write_layout
from compress.storage.atomic_write import apply_umask

Source = Path | str
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
    pooling: str | None = None,
    features: str | None = None,
    head_layers: str | None = None,
) -> PreTrainedModel:
    """Load a folder, card or hub id in fp32.

    With a task the model gets its head: the saved one where it fits the task (labels are matched by name and put in the
    task's order), else a new one, randomly initialised from ``seed``. A new sequence classifier reads what ``pooling``
    says: `mean` of all tokens, or `cls`, the family's own head; by default what the checkpoint's config says. With
    ``features`` it reads the last four layers (`last4`), and of whole texts their mean; with ``head_layers`` a head for
    tags reads them through layers of its own (`bilstm`).
    """
    folder = _local(source, revision)
    config = read_config(folder)
    saved = checkpoint_task(folder, config)
    head = head_for(task) if task else saved.head or HEADS["encoder"]
    reused = fits_task(saved, task) if task else saved.head is head
    if features:
        reused = reused and reads_features(config, features, head_layers)
    if not reused and (pooling or head is not POOLED):
        config = with_head_pooling(config, pooling if head is POOLED else None)
    if not reused:
        config = with_head_features(config, features, head_layers)
    layout = _set_outputs(config, saved, task, head, folder)
    if console and task and reused and head is EMBEDDING and config.pooling != task.pooling:
        console.note(
            f"{folder} keeps its own pooling, {config.pooling}; the task's, {task.pooling}, applies to plain encoders"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, report = read_checkpoint(head.auto, folder, config=config, ignore_mismatched_sizes=True)
    missing = missing_head_weights(model, report, folder)
    check_finite(model, folder)
    if layout is not None and missing and (dense := layout.dense()) is not None:
        set_projection(model, *dense)
        missing = []
    if reused and missing:
        raise ModelError(f"{folder} lacks weights of its head: {', '.join(missing)}.")
    if task and reused:
        _reorder_labels(model, label_order(saved, task))
    elif saved.head is head and not reused:
        _initialise_head(model, seed)
    return model


def load_encoder(folder: Path) -> PreTrainedModel:
    """Return the encoder of a checkpoint in eval mode, whatever head it was saved with."""
    config = read_config(folder)
    model, report = read_checkpoint(HEADS["encoder"].auto, folder, config=config, ignore_mismatched_sizes=True)
    missing = [name for name in report["missing_keys"] if POOLER.strip(".") not in name.split(".")]
    if missing:
        raise ModelError(f"{folder} lacks weights of its encoder: {', '.join(sorted(missing)[:5])}.")
    check_finite(model, folder)
    model.train(False)
    return model


def load_tokenizer(source: Source, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a folder, card or hub id, without the truncation and padding of its last use."""
    folder = _local(source, revision)
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):  # transformers would create an empty one
        raise ModelError(f"{folder} has no tokenizer: expected one of {', '.join(TOKENIZER_FILES)}.")
    try:
        with quiet():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder} has a tokenizer that cannot be read: {first_line(error)}") from error
    if tokenizer.is_fast:
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    if (info := find_info(folder)) is not None and info.task is not None:
        tokenizer.model_max_length = VERY_LARGE_INTEGER  # the file has the task's, and another may read longer texts
    return tokenizer


def save_model(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, info: FolderInfo
) -> FolderInfo:
    """Write a model folder: config, safetensors, tokenizer, and compress.json with the model's shape and inputs.

    One that plain transformers cannot load gets a README.md that says what can.
    """
    info = info.model_copy(update={"shape": shape_of(model), "inputs": family_of(model).inputs})
    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        saved = match_config_to_weights(model)
        saved.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    if head_of_class(type(model).__name__) is EMBEDDING:
        write_layout(folder, model, info.task)
    else:
        write_settings(folder, info.task)
    write_tokenizer_files(folder, info.task)
    write_readme(folder, {**saved.config.to_dict(), "architectures": [type(saved).__name__]})
    apply_umask(folder, folder.rglob("*.safetensors"))
    write_info(folder, info)
    return info


def read_config(folder: Path) -> PreTrainedConfig:
    """Read a folder's config, of a supported family."""
    path = folder / "config.json"
    if not path.is_file():
        elsewhere = (
            "its modules.json has the encoder elsewhere; save it with SentenceTransformer(…).save_pretrained(NEW)"
        )
        hint = elsewhere if list_modules(folder) else None
        if (folder / CASCADE_FILE).is_file():
            hint = f"it is a cascade of two models, {FIRST} and {THEN}; compress.open(folder) answers with both"
        raise ModelError(f"{folder} is not a model folder: it has no config.json.", hint=hint)
    try:
        with quiet():
            config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read: {first_line(error)}") from error
    family_of(config)
    config.output_hidden_states = config.output_attentions = False  # whoever needs them asks for them
    return config


def fit_head(model: PreTrainedModel, task: TaskInfo) -> None:
    """Set the task's labels and problem type in the config of a model in memory; its head must have as many outputs."""
    head, names = head_for(task), output_names(task)
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


def saved_embedding_size(source: Source, revision: str | None = None) -> int | None:
    """Return the width of a checkpoint's embeddings; None if it is not an embedding model."""
    folder = _local(source, revision)
    config = read_config(folder)
    saved = checkpoint_task(folder, config)
    if saved.head is not EMBEDDING:
        return None
    _set_outputs(config, saved, None, EMBEDDING, folder)
    return int(config.sentence_size or config.hidden_size)


def _local(source: Source, revision: str | None) -> Path:
    """Return the local folder of a source; a Path is a folder, a string may also be a card or hub id."""
    return source if isinstance(source, Path) else fetch(source, revision)


def _set_outputs(
    config: PreTrainedConfig, saved: CheckpointTask, task: TaskInfo | None, head: Head | None, folder: Path
) -> Layout | None:
    """Set the task's outputs in the config; return the layout of a folder of sentence-transformers.

    An embedding model keeps its own pooling and projection; a plain encoder gets the task's pooling.
    """
    if task is not None:
        config_for(config, task)
    elif saved.head is not EMBEDDING:
        config.num_labels = max(1, len(saved.names))
    if head is not EMBEDDING:
        return None
    layout = read_layout(folder) if saved.head is EMBEDDING and is_embedding_folder(folder) else None
    if layout is not None:
        layout.set_in(config, folder, trains=task is not None)
    elif saved.head is not EMBEDDING or not hasattr(config, "pooling"):
        set_pooling(config, task.pooling if task else POOLINGS[0])
    return layout


def output_layer(model: PreTrainedModel) -> nn.Linear | None:
    """Return the linear layer that computes a model's outputs; None for embeddings and encoders without a head."""
    linears = [module for module in _head_modules(model) if isinstance(module, nn.Linear)]
    return linears[-1] if linears else None


def _head_modules(model: PreTrainedModel) -> Iterator[nn.Module]:
    """Yield the modules of the head, outer ones first."""
    base = base_of(model)
    for child in model.children() if base is not model else ():
        if child is not base:
            yield from child.modules()


def _initialise_head(model: PreTrainedModel, seed: int) -> None:
    """Initialise the weights of a head that was trained for another task."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in _head_modules(model):
            for parameter in module.parameters(recurse=False):
                parameter._is_hf_initialized = False  # type: ignore[attr-defined]
            model._init_weights(module)  # type: ignore[no-untyped-call]


def _reorder_labels(model: PreTrainedModel, order: Sequence[int]) -> None:
    """Reorder the rows of the last linear layer to the task's order of labels."""
    if order == sorted(order):
        return
    last = output_layer(model)
    assert last is not None
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.copy_(parameter[list(order)])


SETTINGS_FILE = "tokenizer_config.json"
SLOW_FILES = (*TOKENIZER_FILES[1:], "merges.txt", "added_tokens.json")
"""Files with the whole vocabulary, which tokenizer.json makes superfluous."""
ANY_CLASS = "PreTrainedTokenizerFast"
"""The class that uses a tokenizer.json as it is; those of a family keep its table and make the rest anew."""


def replace_tokenizer_json(
    tokenizer: PreTrainedTokenizerBase, content: Mapping[str, Any], longest: int | None
) -> PreTrainedTokenizerBase:
    """Return a tokenizer with the same settings and another tokenizer.json, for texts up to ``longest``.

    Its class is the same, unless the classes of families do not know a setting of the new file.
    """
    with tempfile.TemporaryDirectory() as name, quiet():
        folder = Path(name)
        tokenizer.save_pretrained(folder)
        for file in SLOW_FILES:
            (folder / file).unlink(missing_ok=True)
        (folder / TOKENIZER_FILES[0]).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        settings = json.loads((folder / SETTINGS_FILE).read_bytes())
        settings.pop("added_tokens_decoder", None)  # has the ids of before; those of tokenizer.json are used
        if content["model"].get("ignore_merges"):
            settings["tokenizer_class"] = ANY_CLASS
        (folder / SETTINGS_FILE).write_text(json.dumps(settings), encoding="utf-8")
        limit = {} if longest is None else {"model_max_length": longest}
        loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, **limit)
    return loaded
