"""More texts to distil on: training texts in which a masked language model replaced some words.

Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020 (arXiv:1909.10351),
algorithm 1: each word is replaced with some probability by one of those that are likeliest in its place. There a word
of several pieces is replaced by its nearest neighbour among word vectors; here it is hidden as a single piece, which
asks the same of the context and needs no second model. A changed row has no true answer: only teachers can tell it.

The new rows are written once, before training begins, and read from their file.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np

from compress.atomic_write import atomic_replace_folder
from compress.console import Console
from compress.data.encode import batches_by_length
from compress.data.splits.concatenated_rows import COPY_OF
from compress.data.splits.row_store import RowWriter, StoredRows
from compress.errors import DataError, UsageError
from compress.model_info import TaskInfo
from compress.model_sources import identity
from compress.models.masked_lm import MaskedModel, MaskedWord
from compress.recipe.training_schema import Augment, Distill
from compress.tasks import kind_of
from compress.tasks.base import Row
from compress.tasks.kinds.text_kind import as_tuple
from compress.train.core.distributed import Processes
from compress.train.core.seed_restarts import FOLDER
from compress.train.distillation.cross_encoder_scores import MARGIN_LOSS as MARGIN

ROLE = "augmented"
"""What the file of new rows is called."""

CHUNK = 256
"""Rows of which the words are asked for together, so that texts of like lengths meet."""
BATCH = 64
"""Hidden words in one forward pass."""

SINGLE = "\u3040-\u30ff\u3400-\u9fff"
"""Characters of scripts without spaces, each of which is taken for a word."""
WORD = re.compile(rf"[{SINGLE}]|[^\W\d_{SINGLE}]+(?:['’][^\W\d_{SINGLE}]+)*")

Choice = Mapping[MaskedWord, Sequence[str]]
"""What may stand instead of each word."""


def check_unlabelled(settings: Distill, unlabelled: bool) -> None:
    """Refuse rows without an answer where a loss compares what only answers name."""
    if MARGIN in settings.loss_names() and (unlabelled or settings.augment):
        told = "task.data.unlabelled" if unlabelled else "augment"
        raise UsageError(f"the loss {MARGIN} compares a query's documents, and rows of {told} have none.")


def augmented_rows(
    rows: Sequence[Row], settings: Augment | None, task: TaskInfo, seed: int, work: Path, console: Console
) -> Sequence[Row]:
    """Changed copies of rows without their answers; none where the settings ask for none.

    They are kept in ``work`` until its trainings are forgotten, so that a killed step does not make them again; they go
    by the model, the settings, the seed and the rows. Of several processes only the main one makes them.
    """
    if settings is None:
        return ()
    told = {**settings.model_dump(), "model": identity(settings.model, None), "seed": seed, "version": 2}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for row in rows:
        digest.update(json.dumps(kind_of(task).to_input(row)).encode())
    kept, processes = work / FOLDER / f"{ROLE}-{digest.hexdigest()[:16]}", Processes()
    if processes.is_main and not kept.is_dir():
        model = MaskedModel.load(settings.model, processes.device)
        _write(kept, changed_rows(rows, settings, task, seed, model, console))
    processes.wait()
    found = StoredRows(kept, ROLE)
    console.note(f"augment: {len(found):,} texts made of {len(rows):,} rows of train")
    return found


def changed_rows(
    rows: Sequence[Row], settings: Augment, task: TaskInfo, seed: int, model: MaskedModel, console: Console
) -> Iterator[Row]:
    """The copies of every row in turn, each with its row's place.

    What becomes of a row depends on its texts, its place and the seed.
    """
    kind = kind_of(task)
    with console.progress(len(rows), "augment", "rows") as progress:
        for start in range(0, len(rows), CHUNK):
            places = range(start, min(start + CHUNK, len(rows)))
            texts = [as_tuple(kind.to_input(rows[place])) for place in places]
            copies = [
                (place, parts, words_to_replace(parts, settings.replace, random), random)
                for place, parts in zip(places, texts, strict=True)
                for random in (Random(f"{seed} {place} {copy}") for copy in range(settings.copies))
            ]
            wanted = dict.fromkeys(word for _, _, words, _ in copies for each in words for word in each)
            choice = candidates(list(wanted), settings.candidates, model)
            for place, parts, words, random in copies:
                changed = tuple(replace_words(*each, choice, random) for each in zip(parts, words, strict=True))
                if changed != parts:
                    yield {**kind.from_input(changed[0] if len(changed) == 1 else changed, task), COPY_OF: place}
            progress.advance(len(places))


def words_to_replace(parts: Sequence[str], share: float, random: Random) -> list[list[MaskedWord]]:
    """Of the texts of a row, each word with the probability ``share``; one at least where there is any."""
    every = [
        (part, MaskedWord(text, *found.span())) for part, text in enumerate(parts) for found in WORD.finditer(text)
    ]
    drawn = [each for each in every if random.random() < share] or (every and [random.choice(every)])
    return [[word for place, word in drawn if place == part] for part in range(len(parts))]


def candidates(words: Sequence[MaskedWord], most: int, model: MaskedModel) -> Choice:
    """For each word the likeliest others in its place, as many as ``most``, in its own case."""
    encoded = [model.encode(word) for word in words]
    found: dict[MaskedWord, Sequence[str]] = {}
    for indices in batches_by_length(np.array([len(pieces) for pieces in encoded], dtype=np.int64), BATCH):
        # One more than is wanted: the word itself is often among them.
        for index, likely in zip(indices, model.candidates([encoded[i] for i in indices], most + 1), strict=True):
            word = words[index]
            own = word.text[word.start : word.end]
            others = [other for other in likely if other.lower() != own.lower()]
            found[word] = [match_case(other, own) for other in others[:most]]
    return found


def replace_words(text: str, words: Sequence[MaskedWord], choice: Choice, random: Random) -> str:
    """A text with each of these words, which come in its order, replaced by one of its candidates; the rest stays."""
    pieces, end = [], 0
    for word in words:
        if choice[word]:
            pieces += [text[end : word.start], random.choice(choice[word])]
            end = word.end
    return "".join([*pieces, text[end:]])


def match_case(word: str, own: str) -> str:
    """A word with the capitals of the one that it replaces; as it is where that has none."""
    if own.isupper() and len(own) > 1:
        return word.upper()
    return word[:1].upper() + word[1:] if own[:1].isupper() else word


def _write(folder: Path, rows: Iterator[Row]) -> None:
    """Write the rows aside, and put them in place once all are there."""
    aside = folder.with_name(f"partial-{folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    with RowWriter(aside, ROLE) as writer:
        for row in rows:
            writer.add(row)
        if not len(writer):
            raise DataError("augment: no row of train has a word that could be replace_words.")
    atomic_replace_folder(aside, folder)
