"""Data augmentation for distillation: training texts with words replaced by a masked language model.

Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020 (arXiv:1909.10351),
algorithm 1: each word is replaced with some probability by one of the most likely words in its context. There a word of
several tokens is replaced by its nearest neighbour among word vectors; here it is masked as a single token, which uses
the same context and needs no second model. Changed rows have no true label: they are trained on teacher outputs only.

The new rows are written to a file once, before training, and read from there.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np

from compress.console import Console
from compress.data.encode import batches_by_length
from compress.data.splits.row_store import COPY_OF, RowWriter, StoredRows
from compress.errors import DataError, UsageError
from compress.model_folder.model_info import TaskInfo
from compress.model_sources import identity
from compress.models.masked_lm import MaskedModel, MaskedWord
from compress.recipe.distill_schema import Augment, Distill
from compress.recipe.loss_schema import MARGIN_LOSS
from compress.storage.atomic_write import new_folder
from compress.tasks import kind_of
from compress.tasks.base import Row
from compress.tasks.kinds.text_kind import as_tuple
from compress.train.core.distributed import current_processes
from compress.train.core.seed_restarts import FOLDER

ROLE = "augmented"
"""Name of the file of new rows."""

CHUNK = 256
"""Rows whose words are predicted together, so that texts of similar length share batches."""
BATCH = 64
"""Masked words per forward pass."""

SINGLE = "\u3040-\u30ff\u3400-\u9fff"
"""Characters of scripts without spaces, each treated as a word."""
WORD = re.compile(rf"[{SINGLE}]|[^\W\d_{SINGLE}]+(?:['’][^\W\d_{SINGLE}]+)*")

Candidates = Mapping[MaskedWord, Sequence[str]]
"""The possible replacements of each word."""


def check_unlabelled(settings: Distill, unlabelled: bool) -> None:
    """Refuse rows without labels for a loss that needs documents of a query."""
    if MARGIN_LOSS in settings.loss_names() and (unlabelled or settings.augment):
        source = "task.data.unlabelled" if unlabelled else "augment"
        raise UsageError(f"the loss {MARGIN_LOSS} compares a query's documents, and rows of {source} have none.")


def augmented_rows(
    rows: Sequence[Row], settings: Augment | None, task: TaskInfo, seed: int, work: Path, console: Console
) -> Sequence[Row]:
    """Return changed copies of rows without labels; none without settings.

    They are stored in ``work`` until the training is saved, so that a killed step does not create them again, under a
    digest of the model, the settings, the seed and the rows. Of several processes only the main one creates them.
    """
    if settings is None:
        return ()
    hashed = {**settings.model_dump(), "model": identity(settings.model, None), "seed": seed, "version": 2}
    digest = hashlib.sha256(json.dumps(hashed, sort_keys=True).encode())
    for row in rows:
        digest.update(json.dumps(kind_of(task).to_input(row)).encode())
    folder, processes = work / FOLDER / f"{ROLE}-{digest.hexdigest()[:16]}", current_processes()
    if processes.is_main and not folder.is_dir():
        model = MaskedModel.load(settings.model, processes.device)
        with new_folder(folder) as work_folder, RowWriter(work_folder, ROLE) as writer:
            for row in changed_rows(rows, settings, task, seed, model, console):
                writer.add(row)
            if not len(writer):
                raise DataError("augment: no training row has a word that can be replaced.")
    processes.wait()
    augmented = StoredRows(folder, ROLE)
    console.note(f"augment: {len(augmented):,} texts created from {len(rows):,} training rows")
    return augmented


def changed_rows(
    rows: Sequence[Row], settings: Augment, task: TaskInfo, seed: int, model: MaskedModel, console: Console
) -> Iterator[Row]:
    """Yield the copies of every row, each with its row's index.

    The changes of a row depend on its texts, its index and the seed.
    """
    kind = kind_of(task)
    with console.progress(len(rows), "augment", "rows") as progress:
        for start in range(0, len(rows), CHUNK):
            indices = range(start, min(start + CHUNK, len(rows)))
            texts = [as_tuple(kind.to_input(rows[index])) for index in indices]
            copies = [
                (index, parts, words_to_replace(parts, settings.replace, random), random)
                for index, parts in zip(indices, texts, strict=True)
                for random in (Random(f"{seed} {index} {copy}") for copy in range(settings.copies))
            ]
            unique = dict.fromkeys(word for _, _, words, _ in copies for part in words for word in part)
            choice = candidates(list(unique), settings.candidates, model)
            for index, parts, words, random in copies:
                changed = tuple(
                    replace_words(text, masked, choice, random) for text, masked in zip(parts, words, strict=True)
                )
                if changed != parts:
                    yield {**kind.from_input(changed[0] if len(changed) == 1 else changed, task), COPY_OF: index}
            progress.advance(len(indices))


def words_to_replace(parts: Sequence[str], share: float, random: Random) -> list[list[MaskedWord]]:
    """Draw words of the texts of a row, each with the probability ``share``, at least one if there is any."""
    words = [
        (part, MaskedWord(text, *match.span())) for part, text in enumerate(parts) for match in WORD.finditer(text)
    ]
    drawn = [word for word in words if random.random() < share] or (words and [random.choice(words)])
    return [[word for index, word in drawn if index == part] for part in range(len(parts))]


def candidates(words: Sequence[MaskedWord], count: int, model: MaskedModel) -> Candidates:
    """Return for each word up to ``count`` most likely replacements, with the word's capitalization."""
    encoded = [model.encode(word) for word in words]
    replacements: dict[MaskedWord, Sequence[str]] = {}
    for indices in batches_by_length(np.array([len(pieces) for pieces in encoded], dtype=np.int64), BATCH):
        # One more than needed: the word itself is often among them.
        for index, likely in zip(indices, model.candidates([encoded[i] for i in indices], count + 1), strict=True):
            word = words[index]
            own = word.text[word.start : word.end]
            others = [other for other in likely if other.lower() != own.lower()]
            replacements[word] = [match_case(other, own) for other in others[:count]]
    return replacements


def replace_words(text: str, words: Sequence[MaskedWord], choice: Candidates, random: Random) -> str:
    """Return the text with each of these words, in text order, replaced by one of its candidates."""
    pieces, end = [], 0
    for word in words:
        if choice[word]:
            pieces += [text[end : word.start], random.choice(choice[word])]
            end = word.end
    return "".join([*pieces, text[end:]])


def match_case(word: str, own: str) -> str:
    """Return a word with the capitalization of the one it replaces."""
    if own.isupper() and len(own) > 1:
        return word.upper()
    return word[:1].upper() + word[1:] if own[:1].isupper() else word
