"""Masked language models: predict words that could replace a masked word of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from compress.errors import ModelError
from compress.models.fetch import fetch
from compress.models.load_save import load_tokenizer
from compress.models.read_checkpoint import quiet, read_checkpoint

CONTEXT = 128
"""Maximum number of tokens around the masked word; more context hardly changes the prediction."""

CONTINUATION = "##"
"""Prefix of tokens that continue a word (WordPiece)."""
WORD_STARTS = ("Ġ", "▁")
"""Prefixes of tokens that start a word (byte pairs, SentencePiece)."""


@dataclass(frozen=True)
class MaskedWord:
    """A word of a text, by its character positions."""

    text: str
    start: int
    end: int


class MaskedModel:
    """A masked language model that predicts many masked words in one batch."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str = "in memory") -> None:
        if tokenizer.mask_token is None or tokenizer.pad_token_id is None:
            raise ModelError(f"the tokenizer of {source} has no mask token or no padding token.")
        self._model = model.train(False)
        self._tokenizer = tokenizer
        self._mask, self._pad = int(tokenizer.mask_token_id), int(tokenizer.pad_token_id)
        self._edges: list[int] = tokenizer("")["input_ids"]
        positions = getattr(model.config, "max_position_embeddings", None) or 2 * CONTEXT
        # Position ids of some families start after the padding id.
        self._max_tokens = min(CONTEXT, positions - self._pad - 1) - len(self._edges)
        self._words = self._complete_words(model.config.vocab_size)

    @classmethod
    def load(cls, source: str, device: torch.device | str = "cpu") -> MaskedModel:
        """Load a folder or hub id; raise `ModelError` if it has no such head or is not available."""
        folder = fetch(source)
        model, report = read_checkpoint(AutoModelForMaskedLM, folder)
        if report["missing_keys"]:
            raise ModelError(
                f"{source} is not a masked language model: it has no weights for {min(report['missing_keys'])}.",
                hint="use a checkpoint that was saved with its pretraining head, such as bert-base-uncased",
            )
        nn.Module.to(model, device)
        return cls(model, load_tokenizer(folder), source)

    def encode(self, hidden: MaskedWord) -> list[int]:
        """Return the token ids of a text around one masked word; the word is a single mask token."""
        mask, padding = str(self._tokenizer.mask_token), str(self._tokenizer.pad_token)  # the text may contain both
        before, after = (
            text.replace(mask, padding) for text in (hidden.text[: hidden.start], hidden.text[hidden.end :])
        )
        with quiet():  # transformers warns about texts longer than the model's maximum
            ids: list[int] = self._tokenizer(f"{before}{mask}{after}", add_special_tokens=False)["input_ids"]
        first = max(0, min(ids.index(self._mask) - self._max_tokens // 2, len(ids) - self._max_tokens))
        return [*self._edges[:1], *ids[first : first + self._max_tokens], *self._edges[1:]]

    def candidates(self, encoded: Sequence[list[int]], most: int) -> list[list[str]]:
        """Return the most likely complete words for the masked one of each text, most likely first."""
        texts = [torch.tensor(tokens) for tokens in encoded]
        ids = pad_sequence(texts, batch_first=True, padding_value=self._pad)
        attention_mask = pad_sequence([torch.ones_like(text) for text in texts], batch_first=True)
        logits = self._logits(ids, attention_mask, (ids == self._mask).int().argmax(dim=1))
        words = logits.masked_fill(~self._words.to(logits.device), -torch.inf)
        best = words.topk(min(most, int(self._words.sum())), dim=-1).indices
        return [[self._word(token) for token in row] for row in best.tolist()]

    def _word(self, token: int) -> str:
        return str(self._tokenizer.decode([token])).strip()

    def _logits(self, ids: Tensor, attention_mask: Tensor, position: Tensor) -> Tensor:
        """Return the logits at one position of each text (texts, vocabulary).

        Logits of other positions are not computed where the output layer is a module whose input a hook can narrow.
        """
        device, rows = self._model.device, torch.arange(len(ids))
        handle = self._model.get_output_embeddings().register_forward_pre_hook(
            lambda module, inputs: (inputs[0][rows, position][:, None],)
        )
        try:
            with torch.no_grad():
                logits: Tensor = self._model(input_ids=ids.to(device), attention_mask=attention_mask.to(device)).logits
        finally:
            handle.remove()
        return (logits[:, 0] if logits.shape[1] == 1 else logits[rows, position]).float()

    def _complete_words(self, size: int) -> Tensor:
        """Return a mask over the vocabulary: the tokens that are complete words of letters."""
        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        starts = tuple(mark for mark in WORD_STARTS if any(token.startswith(mark) for token in vocabulary))
        special = set(self._tokenizer.all_special_ids)
        words = torch.zeros(size, dtype=torch.bool)
        for token, index in vocabulary.items():
            is_start = token.startswith(starts) if starts else not token.startswith(CONTINUATION)
            if is_start and index < size and index not in special:
                words[index] = self._word(index).isalpha()
        if not words.any():
            raise ModelError("the vocabulary of the masked language model has no complete words.")
        return words
