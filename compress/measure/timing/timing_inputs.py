"""The inputs of every job of a session: the same few calls, which represent the lengths of all rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from compress.tasks.base import Arrays, TaskInput

Call = tuple[TaskInput, ...]
"""The rows of one batch."""

MAX_CALLS = 64
"""Different calls in a session, at most."""
MIN_CALLS = 8
"""Different calls in a turn at the data's lengths, at least: fewer would not represent their spread."""
SMALL_VOCABULARY = 8
"""Word pieces that any model has, for sessions with a file of unknown vocabulary."""
MAX_PIECES = 512
"""Where longer texts are cut for a model of unknown maximum length."""


def make_calls(texts: Sequence[TaskInput], batch: int, seed: int) -> list[Call]:
    """Return up to 64 batches of rows as they would arrive, from the shortest to the longest.

    Rows meet in batches at random, as in use, so a batch is as long as its longest row. Of more than 64 batches, those
    at even steps of length are taken; if there are fewer rows than a batch holds, rows repeat.
    """
    shuffled = np.random.default_rng(seed).permutation(len(texts))
    count = max(1, len(texts) // batch)
    batches = [np.resize(shuffled[start * batch :], batch) for start in range(count)]
    calls = [tuple(texts[int(row)] for row in rows) for rows in batches]
    calls.sort(key=lambda call: max(len("".join(text)) for text in call))  # of a pair both texts count
    return [calls[index] for index in evenly_spaced(min(MAX_CALLS, count), count)]


def evenly_spaced(count: int, total: int) -> list[int]:
    """Return ``count`` indices below ``total`` at even steps, each in the middle of its share."""
    return [int((index + 0.5) * total / count) for index in range(count)]


def calls_in_turn(available: int, slowest_call: float, seconds: float) -> int:
    """Return how many different calls a turn has so that the slowest job runs them in ``seconds``."""
    affordable = int(seconds / slowest_call)
    return max(min(MIN_CALLS, available), min(available, affordable))


def fixed_arrays(model: Path, batch: int, length: int, seed: int, vocabulary: int | None = None) -> Arrays:
    """Return inputs of exactly ``length`` pieces, without padding, drawn from ``vocabulary`` pieces or the model's own.

    Which pieces they are matters little for speed, how many matters more: the vectors of a few stay in the caches.
    """
    known = vocabulary or vocabulary_of(model) or SMALL_VOCABULARY
    pieces = np.random.default_rng(seed).integers(0, known, size=(batch, length), dtype=np.int64)
    return {
        "input_ids": pieces,
        "attention_mask": np.ones_like(pieces),
        "token_type_ids": np.zeros_like(pieces),
    }


def shared_vocabulary(models: Iterable[Path]) -> int | None:
    """Return the number of word pieces that all models have; a few where one is unknown, None where none exists."""
    return min((vocabulary_of(model) or SMALL_VOCABULARY for model in models if model.exists()), default=None)


def vocabulary_of(model: Path) -> int | None:
    """Return the vocabulary size in the config of a folder, or of the folder of a file; None where it is unknown.

    A config that cannot be read counts as unknown here and fails when the model is opened.
    """
    folder = model if model.is_dir() else model.parent
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        size = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
        return size if isinstance(size, int) and size > 0 else None
    return None


def tokenizer_folder(model: Path) -> Path | None:
    """Return the folder of a model's tokenizer (a file's own folder); None where there is none."""
    from compress.data.tokenizer import TOKENIZER_FILE

    folder = model if model.is_dir() else model.parent
    return folder if (folder / TOKENIZER_FILE).is_file() else None


def tokenize_without_task(model: Path, calls: Iterable[Call]) -> Iterator[Arrays]:
    """Yield each call as one padded batch for a model of unknown task, cut to the model's maximum length."""
    from compress.batch_arrays import INPUT_ARRAYS
    from compress.data.tokenizer import TextTokenizer
    from compress.tasks.model_interface import collate

    tokens = TextTokenizer.load(model if model.is_dir() else model.parent)
    for call in calls:
        pairs = [(text, None) if isinstance(text, str) else text for text in call]
        encoded = [tokens(first, second, tokens.longest or MAX_PIECES) for first, second in pairs]
        examples = [{"input_ids": each.input_ids, "token_type_ids": each.token_type_ids} for each in encoded]
        yield collate(examples, INPUT_ARRAYS, tokens.pad_id)
