"""Checks that teachers and students have the same vocabulary, since they process the same batches."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.errors import ModelError
from compress.models.encoder_parts import word_embeddings

MAX_PADDING = 128
"""Embedding tables are padded to a multiple of at most this number, for fast kernels."""

STUDENT_HINT = "use a student that was trained with the teacher's tokenizer, or specify a shape instead"
TEACHERS_HINT = "use teachers that were trained with the same tokenizer"


def check_same_vocabulary(
    who: str, found: PreTrainedTokenizerBase, expected: PreTrainedTokenizerBase, hint: str
) -> None:
    """Refuse a tokenizer whose vocabulary differs from the teacher's in any token or id."""
    theirs, own = found.get_vocab(), expected.get_vocab()
    if theirs == own:
        return
    token = min(theirs.items() ^ own.items(), key=lambda entry: (entry[1], entry[0]))[0]
    raise ModelError(
        f"{who} has another vocabulary ({len(theirs)} tokens) than the teacher ({len(own)} tokens), but both process "
        f"the same batches: the id of {token!r} is {theirs.get(token, 'missing')}, "
        f"in the teacher's {own.get(token, 'missing')}.",
        hint=hint,
    )


def check_embedding_counts(models: Sequence[PreTrainedModel], tokenizer: PreTrainedTokenizerBase) -> None:
    """Check models in memory: an embedding for every token, and equal counts except for padding.

    The first is the teacher, the last the student.
    """
    names = ["the teacher", *(f"teacher {number}" for number in range(2, len(models))), "the student"]
    counts = [word_embeddings(model).num_embeddings for model in models]
    for who, count in zip(names, counts, strict=True):
        if count < len(tokenizer):
            raise ModelError(
                f"{who} has {count} token embeddings, but the tokenizer has {len(tokenizer)} tokens: "
                "the model was trained with another one."
            )
        check_embedding_count(who, count, counts[0])


def check_embedding_count(who: str, found: int, expected: int) -> None:
    """Refuse a number of embeddings that differs from the teacher's by more than padding."""
    if abs(found - expected) >= MAX_PADDING:
        raise ModelError(
            f"{who} has {found} token embeddings and the teacher {expected}: they were trained with different "
            "tokenizers, but both process the same batches."
        )
