"""Texts for models that do not say which task they answer: a tokenizer is enough to know how long inputs are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from compress.batch_arrays import INPUT_ARRAYS
from compress.data.tokenizer import TOKENIZER_FILE, TextTokenizer
from compress.errors import ModelError
from compress.measure.timing.timing_inputs import Call, Text
from compress.tasks.base import Arrays, Example
from compress.tasks.model_interface import collate

MOST_PIECES = 512
"""Where longer texts are cut for a model that does not tell how much it reads."""


def tokenize(model: Path, calls: Iterable[Call]) -> Iterator[Arrays]:
    """Each call as one padded batch of texts or pairs, cut to what the model reads."""
    folder = tokenizer_folder(model)
    if folder is None:
        raise ModelError(f"{model} has no {TOKENIZER_FILE} beside it; only a fixed length can be timed.")
    tokens = TextTokenizer.load(folder)
    most = tokens.longest or MOST_PIECES
    for call in calls:
        yield collate([_example(text, tokens, most) for text in call], INPUT_ARRAYS, tokens.pad_id)


def tokenizer_folder(model: Path) -> Path | None:
    """The folder of a model's tokenizer: its own, or for a file the one it is in; None where there is none."""
    folder = model if model.is_dir() else model.parent
    return folder if (folder / TOKENIZER_FILE).is_file() else None


def _example(text: Text, tokens: TextTokenizer, most: int) -> Example:
    first, second = (text, None) if isinstance(text, str) else text
    found = tokens(first, second, most)
    return {"input_ids": found.input_ids, "token_type_ids": found.token_type_ids}
