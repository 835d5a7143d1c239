"""Tokenizer files of a model folder, written so that every tool reads texts as compress does.

Tools take the length of texts from tokenizer_config.json (`truncation=True` of transformers and transformers.js) or the
whole procedure from tokenizer.json (the tokenizers library in Rust, Python, node and Swift). Checkpoints leave in both
what their own training set once: a length of 512 for a model that reads 64 tokens, padding to 128. Compress reads
neither; it takes the length from the task and pads each batch to its longest row.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.errors import ModelError
from compress.families import FAMILIES, max_positions, plain_model_type
from compress.model_folder.model_info import TaskInfo
from compress.storage.atomic_write import atomic_write

Settings = dict[str, Any]

TOKENIZER, SETTINGS, CONFIG = "tokenizer.json", "tokenizer_config.json", "config.json"
LENGTH, INPUTS = "model_max_length", "model_input_names"
UNLIMITED = 10**9
"""transformers writes 10**30 where it knows no limit."""
OF_A_CALL = (
    "max_length",
    "stride",
    "truncation",
    "truncation_side",
    "truncation_strategy",
    "padding",
    "padding_side",
    "pad_to_multiple_of",
    "pad_token_type_id",
    "is_local",
    "local_files_only",
)
"""Arguments of a call that transformers stores with the tokenizer, from the tokenizer.json that it was loaded from."""


def write_tokenizer_files(folder: Path, task: TaskInfo | None) -> None:
    """Write the task's length and nothing of an earlier use into the tokenizer files of ``folder``.

    A model without a task keeps its own length, as far as it has positions. Files are replaced, not written to: steps
    of a run share them.
    """
    before, limit = _read(folder / SETTINGS), text_limit(folder, task)
    after = plain_settings(before, limit) | _inputs(folder)
    if after != before and (before or (folder / TOKENIZER).is_file()):
        atomic_write(folder / SETTINGS, json.dumps(after, indent=2, ensure_ascii=False) + "\n")
    if (folder / TOKENIZER).is_file():
        content = {**_read(folder / TOKENIZER), "truncation": truncation(task, limit), "padding": None}
        written = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        if written != (folder / TOKENIZER).read_bytes():
            atomic_write(folder / TOKENIZER, written)


def text_limit(folder: Path, task: TaskInfo | None) -> int | None:
    """Return how many tokens of a text the model in ``folder`` reads; None where neither task nor model limits them."""
    config = _read(folder / CONFIG)
    own = task.max_length if task else _read(folder / SETTINGS).get(LENGTH)
    limits = (own, max_positions(config, config.get("pad_token_id")))
    return min((int(each) for each in limits if isinstance(each, int | float) and each < UNLIMITED), default=None)


def plain_settings(settings: Mapping[str, Any], limit: int | None) -> Settings:
    """Return a tokenizer's settings with this limit, as transformers 4 reads them too (version 5 has names of its own).

    Arguments of earlier calls are left out, and padding is on the right as in training.
    """
    plain = {key: value for key, value in settings.items() if key not in (*OF_A_CALL, LENGTH)}
    if plain.get("tokenizer_class") == "TokenizersBackend":
        plain["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(plain.get("extra_special_tokens"), list):
        plain["additional_special_tokens"] = plain.pop("extra_special_tokens")
    return plain if limit is None else {**plain, LENGTH: limit}


def _inputs(folder: Path) -> Settings:
    """Return which arrays the model takes; empty for a family that is not known.

    A tokenizer without a class of its own makes token types in transformers 4 and none in version 5: the first are too
    many for DistilBERT, and without the second BERT reads pairs as one text.
    """
    family = FAMILIES.get(plain_model_type(str(_read(folder / CONFIG).get("model_type", ""))))
    return {INPUTS: list(family.inputs)} if family else {}


def truncation(task: TaskInfo | None, limit: int | None) -> Settings | None:
    """Return the truncation of tokenizer.json: to the first window of texts that compress reads in several.

    Of a question and its text only the text is cut. Windows that share tokens are not asked for here: the tokenizers
    library stops with an error where a long question leaves less than these.
    """
    if limit is None:
        return None
    strategy = "OnlySecond" if task is not None and task.kind == "question_answering" else "LongestFirst"
    return {"direction": "Right", "max_length": limit, "strategy": strategy, "stride": 0}


def _read(path: Path) -> Settings:
    """Return a JSON object; an empty one where there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    return content if isinstance(content, dict) else {}
