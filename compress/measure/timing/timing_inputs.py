"""What every job of a session is fed: the same few calls, standing for the lengths of all rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from compress.errors import CompressError
from compress.model_info import find_info
from compress.tasks.base import Arrays, TaskInput

Text = TaskInput
"""One row."""
Call = tuple[Text, ...]
"""The rows of one batch."""

MOST_CALLS = 64
"""Different calls in a session, at most."""
LEAST_CALLS = 8
"""Different calls in a turn at the data's lengths, at least: fewer would not stand for their spread."""
SMALL_VOCABULARY = 8
"""Word pieces that any model has, for sessions with a file that does not tell its own."""


def make_calls(texts: Sequence[Text], batch: int, seed: int) -> list[Call]:
    """Up to 64 batches of rows as they would arrive, from the shortest to the longest.

    Rows meet in batches at random, as in use, so a batch is as long as its longest row. Where there are more batches
    than 64, those at even steps of length are taken; where there are fewer rows than a batch holds, rows repeat.
    """
    shuffled = np.random.default_rng(seed).permutation(len(texts))
    count = max(1, len(texts) // batch)
    batches = [np.resize(shuffled[start * batch :], batch) for start in range(count)]
    calls = [tuple(texts[int(row)] for row in rows) for rows in batches]
    calls.sort(key=lambda call: max(map(_characters, call)))
    return [calls[index] for index in spaced(min(MOST_CALLS, count), count)]


def spaced(count: int, of: int) -> list[int]:
    """``count`` indices below ``of`` at even steps, each in the middle of its share."""
    return [int((place + 0.5) * of / count) for place in range(count)]


def calls_in_turn(available: int, slowest_call: float, seconds: float) -> int:
    """How many different calls a turn holds so that the slowest job gets through them in ``seconds``."""
    affordable = int(seconds / slowest_call)
    return max(min(LEAST_CALLS, available), min(available, affordable))


def fixed_arrays(model: Path, batch: int, length: int, seed: int, vocabulary: int | None = None) -> Arrays:
    """Inputs of exactly ``length`` pieces, all real, drawn from ``vocabulary`` pieces or from as many as the model has.

    Which pieces they are matters little to the speed, how many matters more: the vectors of a few stay in the caches.
    """
    known = vocabulary or vocabulary_of(model) or SMALL_VOCABULARY
    pieces = np.random.default_rng(seed).integers(0, known, size=(batch, length), dtype=np.int64)
    return {
        "input_ids": pieces,
        "attention_mask": np.ones_like(pieces),
        "token_type_ids": np.zeros_like(pieces),
    }


def shared_vocabulary(models: Iterable[Path]) -> int | None:
    """The word pieces that all of these models have: as many as the smallest tells of, few where one does not tell.

    What is not there takes no part; None where nothing is.
    """
    return min((vocabulary_of(model) or SMALL_VOCABULARY for model in models if model.exists()), default=None)


def vocabulary_of(model: Path) -> int | None:
    """The number of word pieces that a folder, or the folder of a file, tells of; None where it does not.

    What cannot be read tells nothing here: why not is said where the model is opened.
    """
    folder = model if model.is_dir() else model.parent
    with suppress(CompressError):
        info = find_info(folder)
        if info is not None and info.shape is not None:
            return info.shape.vocabulary
    with suppress(OSError, ValueError):
        told = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        size = told.get("vocab_size") if isinstance(told, dict) else None
        return size if isinstance(size, int) and size > 0 else None
    return None


def _characters(text: Text) -> int:
    return len(text) if isinstance(text, str) else sum(map(len, text))
