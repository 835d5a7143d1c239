"""README.md of model folders that plain transformers refuses: how to load the whole model, and its encoder alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.families import NONUNIFORM_PREFIX, family_named, plain_model_type
from compress.storage.atomic_write import atomic_write

README_FILE = "README.md"
TITLE = "# A model of compress\n"
"""The first line of the files that are written here: those of others are kept."""

WITH_POOLER = ("bert", "roberta", "xlm-roberta", "albert", "mobilebert")
"""Families whose encoder has a layer after the last one, for the first token, which most heads do without."""
EMBEDDING_HEAD, CLASS_PREFIX = "SentenceEmbedding", "Compress"


def write_readme(folder: Path, config: Mapping[str, Any]) -> None:
    """Write README.md beside a model that transformers does not know; remove an older one of ours beside others."""
    path, section = folder / README_FILE, loading_section(config)
    if path.is_file() and not path.read_bytes().startswith(TITLE.encode()):
        return
    if section:
        atomic_write(path, f"{TITLE}\n{section}\n")
    else:
        path.unlink(missing_ok=True)


def loading_section(config: Mapping[str, Any]) -> str:
    """Return how the model of this config.json is loaded in Python; empty where plain transformers can."""
    model_type, classes = str(config.get("model_type", "")), config.get("architectures")
    if not model_type.startswith(NONUNIFORM_PREFIX) or not classes:
        return ""
    prefix, _, head = str(classes[0]).removeprefix(CLASS_PREFIX).partition("For")
    reasons = [*_encoder_reasons(config), *_head_reasons(config)]
    parts = [
        "## Loading it in Python",
        f"transformers alone does not know a `{model_type}`: {'; '.join(reasons)}. With `pip install"
        " 'compress-encoders[train]'` it loads, here from the folder of this file:",
        f"```python\n{_whole_model(head)}\n```",
        *_in_sentence_transformers(head, config),
    ]
    if not _encoder_reasons(config):
        family = plain_model_type(model_type)
        encoder = _encoder(prefix.removesuffix("Model"), without_pooler=family in WITH_POOLER)
        parts += [
            f"Its encoder alone is a plain {family} and needs no `compress`; transformers lists the head's weights,"
            " which it leaves out:",
            f"```python\n{encoder}\n```",
        ]
    else:
        parts.append("Its encoder alone needs `compress` too; an export (`compress export`) runs without.")
    return "\n\n".join(parts)


def _whole_model(head: str) -> str:
    """Return the lines that load the model with its head."""
    if head == EMBEDDING_HEAD:
        return 'import compress.models\n\nmodel = compress.models.load(".")'
    auto = f"AutoModelFor{head}" if head else "AutoModel"
    return f'import compress.models\nfrom transformers import {auto}\n\nmodel = {auto}.from_pretrained(".")'


def _in_sentence_transformers(head: str, config: Mapping[str, Any]) -> list[str]:
    """Return a line on the class of sentence-transformers that opens the model, if there is one."""
    if head == EMBEDDING_HEAD:
        return ['After `import compress.models` sentence-transformers opens it too: `SentenceTransformer(".")`.']
    if head == "SequenceClassification" and len(config.get("id2label") or ()) == 1:
        return ['If it ranks, sentence-transformers opens it after `import compress.models`: `CrossEncoder(".")`.']
    return []


def _encoder(prefix: str, *, without_pooler: bool) -> str:
    """Return the lines that load the encoder; a config read as a file is of the family's class, without a warning."""
    more = ", add_pooling_layer=False" if without_pooler else ""
    return (
        f"from transformers import {prefix}Config, {prefix}Model\n\n"
        f'config = {prefix}Config.from_json_file("config.json")\n'
        f'encoder = {prefix}Model.from_pretrained(".", config=config{more})'
    )


def _encoder_reasons(config: Mapping[str, Any]) -> list[str]:
    """Return what the family's own config cannot describe of the encoder."""
    family, shapes, found = family_named(str(config["model_type"])), config.get("layer_shapes") or [], []
    heads, sizes = {each["heads"] for each in shapes}, {each["ffn"] for each in shapes}
    if len(heads) > 1 or len(sizes) > 1:
        found.append("its layers differ in heads or FFN width")
    elif heads and heads != {int(config[family.hidden_key]) // int(config["head_size"])}:
        found.append("the heads of a layer are narrower together than its hidden states")
    if config.get("factors") is not None:
        found.append(f"its word vectors are factorised (rank {config['factors']})")
    return found


def _head_reasons(config: Mapping[str, Any]) -> list[str]:
    """Return what the family's own classes do not compute after the encoder."""
    found = ["its classifier reads the mean of all tokens"] if config.get("head_pooling") else []
    if config.get("head_features"):
        found.append("its head reads the last four layers")
    if config.get("head_layers"):
        found.append("its head has an LSTM")
    return found
