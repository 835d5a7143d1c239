"""The files by which sentence-transformers and text-embeddings-inference know a model, read and written without torch.

modules.json lists the modules that a text goes through, with a folder for each: of an embedding model the encoder,
pooling, maybe a dense layer, and normalisation; of a cross-encoder the model alone. sentence_bert_config.json has the
length at which texts are cut, config_sentence_transformers.json the kind of model, its prompts and the activation of
its scores. https://sbert.net describes them.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.errors import ModelError
from compress.families import max_positions
from compress.model_folder.model_info import TaskInfo

MODULES, SETTINGS, ABOUT = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
TYPES = "sentence_transformers.models."
"""The package in which all versions find their modules."""
POOLING, DENSE, NORMALIZE = "1_Pooling", "2_Dense", "Normalize"
KNOWN = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Dense"])
"""Supported sequences of modules, optionally followed by Normalize; dropout has no effect."""

FLAGS: Mapping[str, str] = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The key that turns each pooling on. Newer versions name the pooling instead, and read these too; others' servers
read only these."""
SUPPORTED = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean")

WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
IDENTITY = "torch.nn.modules.linear.Identity"
LONGEST = 10**6
"""Longer limits in a tokenizer's settings mean that there is none."""


def list_modules(folder: Path) -> list[tuple[str, Path]]:
    """Return each module's class name, whose package differs between versions, and its folder."""
    listed = read_settings(folder / MODULES, [])
    modules = [(str(module.get("type")).rpartition(".")[2], folder / str(module.get("path"))) for module in listed]
    return [(kind, path) for kind, path in modules if kind != "Dropout"]


def is_embedding_folder(folder: Path) -> bool:
    """Return whether the folder is an embedding model (cross-encoders have modules.json too)."""
    return "Pooling" in dict(list_modules(folder))


def check_modules(folder: Path) -> None:
    """Raise `ModelError` where modules.json lists others than can be computed here."""
    kinds = [kind for kind, _ in list_modules(folder)]
    if (kinds[:-1] if kinds[-1:] == [NORMALIZE] else kinds) not in KNOWN:
        raise ModelError(
            f"{folder / MODULES} lists the modules {', '.join(kinds)}; supported are Transformer, Pooling and,"
            " after them, Dense and Normalize."
        )


def pooling_mode(path: Path) -> str:
    """Return the pooling in a config of old versions (one flag per mode) or new ones."""
    config = read_settings(path)
    named = config.get("pooling_mode") or sorted(mode for mode, flag in FLAGS.items() if config.get(flag) is True)
    modes = [named] if isinstance(named, str) else list(named)
    if len(modes) != 1 or modes[0] not in SUPPORTED:
        raise ModelError(f"{path} pools by {' and '.join(modes) or 'nothing'}; supported: {', '.join(SUPPORTED)}.")
    return str(modes[0])


def task_of_folder(folder: Path) -> TaskInfo | None:
    """Return the task of a folder that sentence-transformers wrote; None where it did not.

    An embedding model compares texts. A cross-encoder ranks candidates if it has one output, else it classifies pairs.

    Raises:
        ModelError: it has modules that cannot be computed here, or texts are changed before they are tokenized.
    """
    config, about = read_settings(folder / "config.json"), read_settings(folder / ABOUT)
    classes = [str(name) for name in config.get("architectures") or ()]
    is_classifier = any(name.endswith("ForSequenceClassification") for name in classes)
    marked = "sentence_transformers" in config or "sbert_ce_default_activation_function" in config
    modules = [kind for kind, _ in list_modules(folder)]
    if modules and not (modules == ["Transformer"] and is_classifier):
        check_modules(folder)
        task = TaskInfo(
            name="similarity",
            kind="similarity",
            text=("text", "other text"),
            metric="spearman",
            max_length=_max_length(folder),
        )
    elif is_classifier and (modules or marked or about.get("model_type") == "CrossEncoder"):
        task = _pair_task(config.get("id2label") or {}, _max_length(folder))
    else:
        return None
    _check_case(folder)
    prompt = default_prompt(folder)
    if prompt and (task.kind != "similarity" or not _pools_prompt(folder)):
        why = "go before each pair" if task.kind != "similarity" else "are left out of the pooling"
        raise ModelError(
            f"{folder / ABOUT} has a default prompt, {prompt!r}, whose tokens {why}; that is not supported.",
            hint="set default_prompt_name to null and write the prompt before each text yourself",
        )
    return task


def default_prompt(folder: Path) -> str:
    """Return the text that sentence-transformers writes before each text that is encoded; usually none."""
    about = read_settings(folder / ABOUT)
    return str((about.get("prompts") or {}).get(about.get("default_prompt_name")) or "")


def write_settings(folder: Path, task: TaskInfo | None) -> None:
    """Write what a folder needs besides its modules: the length of texts, and the kind of model.

    ``task`` decides both; files that are there are completed. Scores of a ranking model are its outputs as they are.
    """
    if task is None:
        return
    config = read_settings(folder / "config.json")
    positions = max_positions(config, config.get("pad_token_id"))
    length = min(task.max_length, positions or task.max_length)
    own: dict[str, Any] = {"max_seq_length": length, "do_lower_case": False}
    if task.kind == "ranking" and not (folder / MODULES).is_file():
        write_json(folder / MODULES, [{"idx": 0, "name": "0", "path": "", "type": f"{TYPES}Transformer"}])
        write_json(folder / ABOUT, {"model_type": "CrossEncoder", "activation_fn": IDENTITY, "prompts": {}})
        own["transformer_task"] = "sequence-classification"
    elif (folder / MODULES).is_file() and not (folder / ABOUT).is_file():
        write_json(folder / ABOUT, {"model_type": "SentenceTransformer", "prompts": {}, "similarity_fn_name": "cosine"})
    write_json(folder / SETTINGS, own | read_settings(folder / SETTINGS) | {"max_seq_length": length})


def pooling_settings(pooling: str, width: int, *, include_prompt: bool = True) -> dict[str, Any]:
    """Return the config of a pooling module, as every version and other servers read it."""
    flags = {flag: mode == pooling for mode, flag in FLAGS.items()}
    return {"word_embedding_dimension": width, **flags, "include_prompt": include_prompt}


def copy_modules(source: Path, work: Path) -> None:
    """Copy the modules of a model beside its encoder, to be found by the tools that pool the encoder's outputs."""
    if not (source / MODULES).is_file():
        return
    for name in (MODULES, SETTINGS, ABOUT):
        if (source / name).is_file():
            shutil.copyfile(source / name, work / name)
    for kind, path in list_modules(source):
        if path.resolve() == source.resolve() or not path.is_dir():
            continue
        target = work / path.relative_to(source)
        target.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", WEIGHTS):
            if (path / name).is_file():
                shutil.copyfile(path / name, target / name)
        if (path / PICKLED).is_file() and not (path / WEIGHTS).is_file():
            _convert_pickled(path / PICKLED, target / WEIGHTS)
        if kind == "Pooling":
            config = read_settings(path / "config.json")
            width = config.get("word_embedding_dimension") or config.get("embedding_dimension")
            include = bool(config.get("include_prompt", True))
            settings = pooling_settings(pooling_mode(path / "config.json"), int(width), include_prompt=include)
            write_json(target / "config.json", settings)


def read_settings(path: Path, default: Any = None) -> Any:
    """Return the content of a JSON file, and ``default`` (nothing: an empty mapping) where there is none."""
    if not path.is_file():
        return {} if default is None else default
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, and its folder."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _max_length(folder: Path) -> int:
    """Return the tokens at which sentence-transformers cuts texts."""
    config, tokenizer = read_settings(folder / "config.json"), read_settings(folder / "tokenizer_config.json")
    limits = [read_settings(folder / SETTINGS).get("max_seq_length") or tokenizer.get("model_max_length")]
    limits.append(max_positions(config, config.get("pad_token_id")))
    return int(min((limit for limit in limits if isinstance(limit, int) and limit < LONGEST), default=512))


def _pair_task(id2label: Mapping[str, str], max_length: int) -> TaskInfo:
    """Return the task of a cross-encoder: candidates are ranked by one output, or pairs have one of several labels."""
    labels = tuple(str(id2label[index]) for index in sorted(id2label, key=int))
    kind, metric = ("ranking", "map") if len(labels) <= 1 else ("classification", "accuracy")
    labels = labels if kind == "classification" else ()
    text = ("query", "candidate")
    return TaskInfo(name=kind, kind=kind, text=text, labels=labels, metric=metric, max_length=max_length)


def _check_case(folder: Path) -> None:
    """Refuse a folder whose texts sentence-transformers makes lower case because their tokenizer does not."""
    tokenizer = read_settings(folder / "tokenizer.json")
    wanted = read_settings(folder / SETTINGS).get("do_lower_case") is True
    if wanted and tokenizer and not _lowers(tokenizer.get("normalizer") or {}):
        raise ModelError(
            f"{folder / SETTINGS} makes texts lower case before the tokenizer, which does not; that is not supported.",
            hint="add the normalizer Lowercase to tokenizer.json, or set do_lower_case to false",
        )


def _lowers(normalizer: Mapping[str, Any]) -> bool:
    """Return whether a normalizer of tokenizer.json makes texts lower case."""
    is_one = normalizer.get("type") == "Lowercase" or normalizer.get("lowercase") is True
    return is_one or any(map(_lowers, normalizer.get("normalizers") or ()))


def _pools_prompt(folder: Path) -> bool:
    path = dict(list_modules(folder))["Pooling"] / "config.json"
    return bool(read_settings(path).get("include_prompt", True))


def _convert_pickled(path: Path, target: Path) -> None:
    """Write pickled weights as safetensors; nothing but plain tensors is read."""
    import torch
    from safetensors.torch import save_file

    weights = torch.load(path, map_location="cpu", weights_only=True)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, target, {"format": "pt"})
