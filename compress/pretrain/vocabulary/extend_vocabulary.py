"""`vocabulary: {add: N}`: a checkpoint with more pieces, for the frequent words of the texts that it goes on with.

A new piece's vector is the mean of the vectors of the pieces that its word was cut into.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, PreTrainedModel

from compress.console import Console
from compress.errors import DataError, ModelError, pluralize
from compress.model_folder.tokenizer_files import write_tokenizer_files
from compress.models.encoder_parts import family_of, word_embeddings
from compress.models.load_save import load_tokenizer, read_config, replace_tokenizer_json
from compress.models.masked_lm import WORD_STARTS
from compress.models.read_checkpoint import check_finite, missing_head_weights, quiet, read_checkpoint
from compress.models.student.factorised_embeddings import FactoredEmbedding
from compress.pretrain.text.corpus_pieces import Document
from compress.pretrain.vocabulary.add_pieces import add_pieces
from compress.pretrain.vocabulary.train_vocabulary import MOST_CHARACTERS, first_texts

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
        try:
            model, report = read_checkpoint(auto, folder)
            missing = missing_head_weights(model, report, folder)
        except ModelError:  # a family without such a class
            if auto is AutoModel:
                raise
            continue
        if not missing:
            break
    check_finite(model, folder)
    return model


MAX_WORDS = 2**20
"""Distinct words that are counted at once; beyond it the rarest are forgotten, so that memory stays flat."""
WORD = re.compile(r"\s?(\w+)")


def count_words(texts: Iterable[str], tokenizer: Tokenizer, most: int = MAX_WORDS) -> Counter[str]:
    """Return how often each word occurs, with a space before it where the tokenizer marks the starts of words.

    With more than ``most`` distinct words those that are rare are left out. Punctuation that a tokenizer does not
    separate (SentencePiece: `▁word,`) is no part of a word.
    """
    counts = Counter[str]()
    if tokenizer.pre_tokenizer is None:
        raise ModelError("the tokenizer cuts texts into no words, so there are none to add.")
    for text in texts:
        normalized = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
        for piece, (start, end) in tokenizer.pre_tokenizer.pre_tokenize_str(normalized):
            if match := WORD.match(normalized, start, end):
                counts[" " * piece.startswith(WORD_STARTS) + match.group(1)] += 1
        if len(counts) > most:
            _forget_rare(counts, most // 2)
    return counts


def _forget_rare(counts: Counter[str], kept: int) -> None:
    """Remove the rarest words, so that at most ``kept`` are left."""
    limit = sorted(counts.values(), reverse=True)[kept]
    for word in [word for word, count in counts.items() if count <= limit]:
        del counts[word]


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
