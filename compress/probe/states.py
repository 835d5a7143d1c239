"""The states of all layers: each text of the corpus goes through a model once, and vectors stay in mapped files.

Of a text the mean over its tokens is kept, of the words that tasks ask for the mean over their pieces. Words are found
by characters, so models with different tokenizers give vectors of the same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.console import Console
from compress.errors import ModelError
from compress.families import max_positions
from compress.losses import EMBEDDINGS
from compress.model_sources import refuse_exported
from compress.models.encoder_parts import base_of, capture_parts, family_of, layers_of
from compress.models.load_save import load_encoder, load_tokenizer
from compress.models.read_checkpoint import quiet
from compress.probe.probe_items import Corpus

BATCH_TOKENS, TEXTS = 4096, 128
"""Tokens of a batch at most, padding included, and texts."""
STORED = "<f4"
"""Single precision: MobileBERT, which normalises nothing, has states beyond what half precision holds."""


@dataclass(frozen=True)
class ProbedModel:
    """A model that is probed, with its tokenizer."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: Path

    @classmethod
    def open(cls, folder: Path, name: str) -> ProbedModel:
        """Load the encoder of a folder."""
        refuse_exported(folder)
        tokenizer = load_tokenizer(folder)
        if not tokenizer.is_fast:
            reason = "has a tokenizer that gives no characters of its pieces, so words cannot be found"
            raise ModelError(f"{folder} {reason}.")
        model = load_encoder(folder)
        if not family_of(model).has_attention:
            raise ModelError(f"{folder} is a {family_of(model).name} student: it has no layers to probe.")
        return cls(name, model, tokenizer, folder)

    @property
    def layers(self) -> list[str]:
        """The names of what is probed, from the embeddings on."""
        return ["embeddings", *(str(number) for number in range(len(layers_of(self.model))))]


@dataclass(frozen=True)
class States:
    """The vectors of one model."""

    name: str
    layers: tuple[str, ...]
    width: int
    folder: Path
    texts: int
    seen: NDArray[np.bool_]
    """By word of the corpus, whether the model saw all of it: a long text is cut."""

    def of_texts(self, layer: int) -> NDArray[np.float32]:
        """Return the vectors of all texts in a layer, from a mapped file."""
        return self.file("texts", layer)

    def of_words(self, layer: int) -> NDArray[np.float32]:
        """Return the vectors of all words in a layer, from a mapped file."""
        return self.file("words", layer)

    def file(self, what: Literal["texts", "words"], layer: int, mode: Literal["r", "w+"] = "r") -> NDArray[np.float32]:
        """Map the vectors of a layer."""
        shape = (self.texts if what == "texts" else len(self.seen), self.width)
        if not shape[0]:  # an empty file cannot be mapped
            return np.zeros(shape, STORED)
        return np.memmap(self.folder / f"{what}-{layer}", STORED, mode, shape=shape)


def encode_states(probed: ProbedModel, corpus: Corpus, max_length: int, folder: Path, console: Console) -> States:
    """Run the corpus through a model, and write the vectors of every layer into ``folder``."""
    words_of: dict[int, list[tuple[int, int, int]]] = {}
    for (text, start, end), number in corpus.words.items():
        words_of.setdefault(text, []).append((number, start, end))
    model, layers = probed.model, range(len(probed.layers))
    width, texts, words = int(base_of(model).config.hidden_size), len(corpus.texts), len(corpus.words)
    states = States(probed.name, tuple(probed.layers), width, folder, texts, np.zeros(words, dtype=np.bool_))
    folder.mkdir(parents=True, exist_ok=True)
    files = {("texts", layer): states.file("texts", layer, "w+") for layer in layers}
    files |= {("words", layer): states.file("words", layer, "w+") for layer in layers}
    with console.progress(texts, f"{probed.name}: encode", "texts") as progress:
        for batch in token_batches(probed, list(corpus.texts), max_length):
            pieces = _word_pieces(batch, words_of)
            share = batch.mask / batch.mask.sum(1, keepdim=True)
            for layer, hidden in enumerate(hidden_states(model, batch.inputs)):
                files["texts", layer][batch.texts] = torch.einsum("bt,btw->bw", share, hidden).numpy()
                if pieces.words:
                    files["words", layer][pieces.words] = torch.sparse.mm(pieces.shares, hidden.flatten(0, 1)).numpy()
            states.seen[pieces.words] = True
            progress.advance(len(batch.texts))
    return states


def hidden_states(model: PreTrainedModel, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Return the embeddings and the output of each layer, (texts, tokens, width)."""
    wanted = dict.fromkeys((EMBEDDINGS, *range(len(layers_of(model)))), ("hidden",))
    with torch.inference_mode(), capture_parts(model, wanted) as captured:  # type: ignore[arg-type]
        base_of(model)(**inputs)
    return [captured[layer]["hidden"].float() for layer in sorted(captured)]


@dataclass(frozen=True)
class TokenBatch:
    """Texts of similar length as a model reads them."""

    texts: list[int]
    inputs: dict[str, Tensor]
    offsets: NDArray[np.int64]
    """(texts, tokens, 2): first and end character of each token in the last text of a pair; (-1, -1) of others."""
    word_ids: NDArray[np.int64]
    """(texts, tokens): which word of its text a token is a piece of, as the tokenizer splits; -1 of special tokens."""

    def part(self, lines: slice) -> TokenBatch:
        """Return some of the texts."""
        inputs = {name: values[lines] for name, values in self.inputs.items()}
        return TokenBatch(self.texts[lines], inputs, self.offsets[lines], self.word_ids[lines])

    @property
    def mask(self) -> Tensor:
        """1 for tokens, 0 for padding."""
        return self.inputs["attention_mask"].float()


def token_batches(
    probed: ProbedModel, texts: Sequence[tuple[str, str | None]], max_length: int, tokens: int = BATCH_TOKENS
) -> Iterator[TokenBatch]:
    """Yield all texts, short ones first, in batches of at most so many ``tokens``, and of at least one text."""
    positions = max_positions(base_of(probed.model).config.to_dict(), probed.tokenizer.pad_token_id)
    limit = min(max_length, positions or max_length)
    for is_pair in (False, True):
        chosen = [index for index, (_, pair) in enumerate(texts) if (pair is not None) == is_pair]
        chosen.sort(key=lambda index: len(texts[index][0]) + len(texts[index][1] or ""))
        for start in range(0, len(chosen), TEXTS):
            batch = _token_batch(probed, texts, chosen[start : start + TEXTS], limit)
            step = max(1, tokens // batch.offsets.shape[1])
            for first in range(0, len(batch.texts), step):
                yield batch.part(slice(first, first + step))


def _token_batch(
    probed: ProbedModel, texts: Sequence[tuple[str, str | None]], chosen: list[int], limit: int
) -> TokenBatch:
    """Tokenize texts that are all single ones, or all pairs."""
    names = family_of(probed.model).inputs
    firsts, pairs = [texts[index][0] for index in chosen], [texts[index][1] for index in chosen]
    is_pair = pairs[0] is not None
    with quiet():
        encoded = probed.tokenizer(
            firsts,
            pairs if is_pair else None,
            truncation=True,
            max_length=limit,
            padding=True,
            padding_side="right",
            return_offsets_mapping=True,
            return_token_type_ids="token_type_ids" in names,
            return_tensors="pt",
        )
    in_last = np.array([[each == int(is_pair) for each in encoded.sequence_ids(line)] for line in range(len(chosen))])
    words = [[-1 if word is None else word for word in encoded.word_ids(line)] for line in range(len(chosen))]
    return TokenBatch(
        texts=chosen,
        inputs={name: encoded[name] for name in names},
        offsets=np.where(in_last[..., None], encoded["offset_mapping"].numpy(), -1),
        word_ids=np.array(words, dtype=np.int64),
    )


@dataclass(frozen=True)
class _WordPieces:
    """Which tokens of a batch make up which words."""

    words: list[int]
    shares: Tensor
    """(words, tokens of the batch), sparse: one over the number of its pieces."""


def _word_pieces(batch: TokenBatch, words_of: dict[int, list[tuple[int, int, int]]]) -> _WordPieces:
    words, rows, columns, values = list[int](), list[int](), list[int](), list[float]()
    length = batch.offsets.shape[1]
    for line, text in enumerate(batch.texts):
        firsts, ends = batch.offsets[line, :, 0], batch.offsets[line, :, 1]
        for word, start, end in words_of.get(text, ()):
            pieces = np.flatnonzero((firsts < end) & (ends > start))
            if len(pieces) and ends.max() >= end:
                rows += [len(words)] * len(pieces)
                columns += (line * length + pieces).tolist()
                values += [1 / len(pieces)] * len(pieces)
                words.append(word)
    shape = (len(words), len(batch.texts) * length)
    places, shares = torch.tensor([rows, columns]), torch.tensor(values)
    return _WordPieces(words, torch.sparse_coo_tensor(places, shares, shape, check_invariants=False))
