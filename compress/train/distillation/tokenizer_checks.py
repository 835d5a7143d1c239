"""Teachers and students read the same batches, so the same number must stand for the same piece in all of them."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.errors import ModelError
from compress.models.student.factorised_embeddings import word_embeddings

PADDED = 128
"""Embeddings are padded to a multiple of this at most: kernels like them."""

STUDENT_HINT = "take a student that was trained with the teacher's tokenizer, or give a shape instead"
TEACHERS_HINT = "take teachers that were trained with one tokenizer"


def check_same_vocabulary(
    who: str, found: PreTrainedTokenizerBase, expected: PreTrainedTokenizerBase, hint: str
) -> None:
    """Refuse a tokenizer whose vocabulary differs from the teacher's in any piece or its number."""
    theirs, own = found.get_vocab(), expected.get_vocab()
    if theirs == own:
        return
    piece = min(theirs.items() ^ own.items(), key=lambda entry: (entry[1], entry[0]))[0]
    raise ModelError(
        f"{who} has another vocabulary ({len(theirs)} pieces) than the teacher ({len(own)} pieces), and both read the "
        f"same batches: there {piece!r} is {_number(theirs, piece)}, in the teacher's {_number(own, piece)}.",
        hint=hint,
    )


def check_embedding_counts(models: Sequence[PreTrainedModel], tokenizer: PreTrainedTokenizerBase) -> None:
    """As far as models in memory tell: each has a vector for every piece, and as many as the others but for padding.

    The first is the teacher, the last the student.
    """
    counts = [word_embeddings(model).num_embeddings for model in models]
    if min(counts) < len(tokenizer):
        raise ModelError(
            f"{_who(models, counts.index(min(counts)))} has word vectors for {min(counts)} pieces, and the tokenizer "
            f"has {len(tokenizer)}: it was trained with another one."
        )
    for place, count in enumerate(counts):
        check_embedding_count(_who(models, place), count, counts[0])


def check_embedding_count(who: str, found: int, expected: int) -> None:
    """Refuse a number of word vectors that no padding makes of the teacher's."""
    if abs(found - expected) >= PADDED:
        raise ModelError(
            f"{who} has word vectors for {found} pieces and the teacher for {expected}: they were trained with "
            "different tokenizers, and both read the same batches."
        )


def _number(vocabulary: dict[str, int], piece: str) -> str:
    return f"number {vocabulary[piece]}" if piece in vocabulary else "missing"


def _who(models: Sequence[PreTrainedModel], place: int) -> str:
    if place == len(models) - 1:
        return "the student"
    return "the teacher" if place == 0 else f"teacher {place + 1}"
