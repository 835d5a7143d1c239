"""`vocabulary: {add: N}`: a checkpoint with more pieces, for the frequent words of the texts that it goes on with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, PreTrainedModel

from compress.console import Console
from compress.errors import DataError, ModelError, pluralize
from compress.models.load_save import load_tokenizer, read_config
from compress.models.read_checkpoint import check_finite, missing_head_weights, read_checkpoint
from compress.models.replace_tokenizer_json import replace_tokenizer_json
from compress.models.silence_transformers import quiet
from compress.pretrain.text.documents import Document
from compress.pretrain.vocabulary.add_pieces import add_pieces
from compress.pretrain.vocabulary.count_words import count_words
from compress.pretrain.vocabulary.new_vectors import add_vectors
from compress.pretrain.vocabulary.train_vocabulary import MOST_CHARACTERS, first_texts
from compress.tokenizer_files import write_tokenizer_files

SHOWN = 8
"""Words that a message names."""


def extend_vocabulary(start: Path, documents: Iterable[Document], number: int, folder: Path, console: Console) -> None:
    """Write the checkpoint of ``start``, with the heads that it has, with ``number`` more pieces to ``folder``."""
    tokenizer, model = load_tokenizer(start), _with_its_heads(start)
    if not tokenizer.is_fast:
        raise ModelError(f"pieces cannot be added to {start}: its tokenizer has no tokenizer.json.")
    texts = first_texts(documents, MOST_CHARACTERS["wordpiece"])
    counts = count_words(texts, tokenizer.backend_tokenizer)
    added = add_pieces(json.loads(tokenizer.backend_tokenizer.to_str()), counts, number)
    if not added.words:
        raise DataError(
            "vocabulary.add: the texts have no word that occurs more than once and is cut into known pieces.",
            hint="leave vocabulary out, or give more text",
        )
    extended = replace_tokenizer_json(tokenizer, added.content, None)
    add_vectors(model, added.parts)
    with quiet():
        model.save_pretrained(folder)
        extended.save_pretrained(folder)
    write_tokenizer_files(folder, None)
    share = sum(counts[word] for word in added.words) / counts.total()
    examples = ", ".join(word.strip() for word in added.words[:SHOWN])
    console.note(
        f"vocabulary: {len(added.words):,} pieces added for {share:.1%} of the texts' words ({examples} …);"
        f" {len(tokenizer):,} → {len(extended):,}"
    )
    if len(added.words) < number:
        console.warn(f"vocabulary.add: {number:,} asked for, but the texts have only {len(added.words):,} such words")
    if added.left_out:
        console.note(
            f"vocabulary: {pluralize(len(added.left_out), 'frequent word')} left out, since longer words of the texts"
            f" would be cut differently ({', '.join(word.strip() for word in added.left_out[:SHOWN])} …)"
        )


def _with_its_heads(folder: Path) -> PreTrainedModel:
    """Return a checkpoint with those pretraining heads that it has weights for."""
    read_config(folder)
    for auto in (AutoModelForPreTraining, AutoModelForMaskedLM, AutoModel):
        model, report = read_checkpoint(auto, folder)
        if not missing_head_weights(model, report, folder):
            break
    check_finite(model, folder)
    return model
