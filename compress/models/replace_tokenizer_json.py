"""Gives a tokenizer of transformers another tokenizer.json."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from compress.models.load_save import TOKENIZER_FILES
from compress.models.silence_transformers import quiet

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
