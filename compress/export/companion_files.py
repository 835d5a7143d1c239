"""The files beside an exported graph, written so that every tool of the family's plain models reads them.

A graph computes what it computes, and config.json only describes it: an export of a pruned model or of one with a head
of ours says `bert` and `BertForSequenceClassification`, without our own keys. The shape stays in compress.json.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.data.tokenizer import read_json
from compress.families import FAMILIES, plain_model_type
from compress.model_info import TaskInfo
from compress.runtime.model_formats import COMPANIONS
from compress.tokenizer_files import write_tokenizer_files

Settings = dict[str, Any]

OWN_KEYS = (
    "layer_shapes",
    "head_size",
    "factors",
    "head_pooling",
    "head_features",
    "head_layers",
    "pooling",
    "sentence_size",
    "sentence_bias",
    "sentence_activation",
    "sentence_normalize",
)
"""Config keys that only compress reads, all of them for models with weights."""

HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
"""Heads of plain classes that a graph computes; others are exported as the encoder, or pooled on top of it."""


def copy_companions(source: Path, work: Path, task: TaskInfo | None) -> None:
    """Copy the files that belong to a model besides its weights, and write config and tokenizer files plainly."""
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, work / name)
    before = read_json(work / "config.json")
    if before and (after := plain_config(before)) != before:
        (work / "config.json").write_text(json.dumps(after, indent=2) + "\n", encoding="utf-8")
    write_tokenizer_files(work, task)


def plain_config(config: Mapping[str, Any]) -> Settings:
    """Return a config with the family's plain model_type and classes, without our own keys."""
    plain = {key: value for key, value in config.items() if key not in OWN_KEYS}
    model_type = plain["model_type"] = plain_model_type(str(config.get("model_type", "")))
    if classes := config.get("architectures"):
        plain["architectures"] = [_plain_class(str(name), model_type) for name in classes]
    if family := FAMILIES.get(model_type):  # under the names that servers read, which DistilBERT has not
        for name, key in {"hidden_size": family.hidden_key, "num_hidden_layers": family.layers_key}.items():
            if key in plain:
                plain.setdefault(name, plain[key])
    return plain


def _plain_class(name: str, model_type: str) -> str:
    """Return transformers' class for what the export of a model of this class computes."""
    prefix, _, head = name.removeprefix("Compress").partition("For")
    family = FAMILIES.get(model_type)
    if head == "MultipleChoice" and family is not None and family.choice_head_is_sequence_head:
        head = "SequenceClassification"
    return f"{prefix}For{head}" if head in HEADS else f"{prefix.removesuffix('Model')}Model"
