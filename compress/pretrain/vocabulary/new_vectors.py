"""Word vectors of new pieces: the mean of the vectors of the pieces that a word was cut into.

The rows of the output layer and its bias, where the model has one, are treated in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.models.encoder_parts import family_of, word_embeddings
from compress.models.silence_transformers import quiet
from compress.models.student.factorised_embeddings import FactoredEmbedding


def add_vectors(model: PreTrainedModel, parts: Mapping[int, Sequence[int]]) -> None:
    """Give a model vectors for new ids, in place; the config's `vocab_size` follows.

    Ids may already have a row, where a table was padded with unused ones.

    Args:
        model: with or without a masked-LM head.
        parts: by new id the ids of the pieces that it replaces.
    """
    vectors = word_embeddings(model)
    if isinstance(vectors, FactoredEmbedding) or not family_of(model).resizable:
        reason = (
            "whose word vectors are factorised" if family_of(model).resizable else "whose output layer has two parts"
        )
        raise ModelError(f"pieces cannot be added to a model {reason}.", hint="leave vocabulary.add out")
    rows = max(vectors.num_embeddings, *(index + 1 for index in parts))
    if rows > vectors.num_embeddings:
        with quiet():
            model.resize_token_embeddings(rows, mean_resizing=False)
    output = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    tables: list[Tensor] = [word_embeddings(model).weight]
    if isinstance(output, nn.Linear):
        tables += [own for own in output.parameters(recurse=False) if own is not tables[0]]
    with torch.no_grad():
        for table in tables:
            for index, old in parts.items():
                table[index] = table[list(old)].mean(dim=0)
