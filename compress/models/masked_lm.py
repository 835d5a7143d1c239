"""Masked language models: which words could stand in a text instead of one that is hidden."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from compress.errors import ModelError
from compress.models.fetch import SAFE_WEIGHTS, fetch
from compress.models.load_save import load_tokenizer
from compress.models.silence_transformers import quiet

CONTEXT = 128
"""Pieces that the model sees around a hidden word, at most: what is farther away hardly matters."""

INSIDE = "##"
"""How pieces begin that go on with a word, where the others begin one (WordPiece)."""
BEGINS = ("Ġ", "▁")
"""How pieces begin that begin a word, where the others go on with one (byte pairs, SentencePiece)."""


@dataclass(frozen=True)
class MaskedWord:
    """A word of a text, by its characters."""

    text: str
    start: int
    end: int


class MaskedModel:
    """A masked language model that is asked about many words at once."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str = "in memory") -> None:
        if tokenizer.mask_token is None or tokenizer.pad_token_id is None:
            raise ModelError(f"the tokenizer of {source} has no piece for hidden words, or none for padding.")
        self._model = model.train(False)
        self._tokenizer = tokenizer
        self._mask, self._pad = int(tokenizer.mask_token_id), int(tokenizer.pad_token_id)
        self._edges: list[int] = tokenizer("")["input_ids"]
        positions = getattr(model.config, "max_position_embeddings", None) or 2 * CONTEXT
        # Some families count positions from behind the padding's number.
        self._most = min(CONTEXT, positions - self._pad - 1) - len(self._edges)
        self._words = self._whole_words(model.config.vocab_size)

    @classmethod
    def load(cls, source: str, device: torch.device | str = "cpu") -> MaskedModel:
        """A folder or hub id; one that has no such head, or is not to be had, is a ModelError."""
        folder = fetch(source)
        model = _read(folder, source)
        nn.Module.to(model, device)
        return cls(model, load_tokenizer(folder), source)

    def encode(self, hidden: MaskedWord) -> list[int]:
        """The pieces of a text around one hidden word, which is a single piece however many it had."""
        text = f"{hidden.text[: hidden.start]}{self._tokenizer.mask_token}{hidden.text[hidden.end :]}"
        with quiet():  # transformers warns of texts that are longer than its models'
            ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        # A text may hold the mask's own name: ours is the one behind as many as stand before the word.
        places = [place for place, piece in enumerate(ids) if piece == self._mask]
        place = places[min(hidden.text[: hidden.start].count(self._tokenizer.mask_token), len(places) - 1)]
        first = max(0, min(place - self._most // 2, len(ids) - self._most))
        shown = ids[first : first + self._most]
        shown = [self._pad if piece == self._mask and first + at != place else piece for at, piece in enumerate(shown)]
        return [*self._edges[:1], *shown, *self._edges[1:]]

    def candidates(self, encoded: Sequence[list[int]], most: int) -> list[list[str]]:
        """The likeliest whole words for the hidden one of each text, the likeliest first."""
        width = max(map(len, encoded))
        ids = torch.tensor([pieces + [self._pad] * (width - len(pieces)) for pieces in encoded])
        lengths = torch.tensor([len(pieces) for pieces in encoded])
        seen = (torch.arange(width) < lengths[:, None]).long()
        asked = self._logits(ids, seen, (ids == self._mask).int().argmax(dim=1))
        best = (
            asked.masked_fill(~self._words.to(asked.device), -torch.inf)
            .topk(min(most, int(self._words.sum())), dim=-1)
            .indices.tolist()
        )
        return [[self._word(piece) for piece in line] for line in best]

    def _word(self, piece: int) -> str:
        return str(self._tokenizer.decode([piece])).strip()

    def _logits(self, ids: Tensor, seen: Tensor, place: Tensor) -> Tensor:
        """What the model says of one place of each text (texts, pieces).

        What it says of the others, a number for each piece of the vocabulary, is not even computed where the last layer
        is a module that a hook can cut the input of.
        """
        device, lines = self._model.device, torch.arange(len(ids))

        def only_there(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            return (inputs[0][lines, place][:, None],)

        last = self._model.get_output_embeddings()
        with torch.no_grad(), replace_input(last, only_there):
            logits: Tensor = self._model(input_ids=ids.to(device), attention_mask=seen.to(device)).logits
        return (logits[:, 0] if logits.shape[1] == 1 else logits[lines, place]).float()

    def _whole_words(self, size: int) -> Tensor:
        """Which pieces are words of letters by themselves."""
        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        begins = tuple(mark for mark in BEGINS if any(piece.startswith(mark) for piece in vocabulary))
        special = set(self._tokenizer.all_special_ids)
        words = torch.zeros(size, dtype=torch.bool)
        for piece, number in vocabulary.items():
            starts = piece.startswith(begins) if begins else not piece.startswith(INSIDE)
            if starts and number < size and number not in special:
                words[number] = self._word(number).isalpha()
        if not words.any():
            raise ModelError("no piece of the masked language model is a word by itself.")
        return words


@contextmanager
def replace_input(module: nn.Module, hook: Callable[[nn.Module, tuple[Tensor]], tuple[Tensor]]) -> Iterator[None]:
    """Change what a module is given, as long as the block lasts."""
    handle = module.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _read(folder: Path, source: str) -> PreTrainedModel:
    try:
        with quiet():
            model, report = AutoModelForMaskedLM.from_pretrained(
                folder,
                dtype=torch.float32,
                use_safetensors=(folder / SAFE_WEIGHTS).is_file(),
                weights_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except pickle.UnpicklingError as error:
        raise ModelError(f"the weights of {source} hold more than plain tensors, so they are not read.") from error
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"{source} cannot be read as a masked language model: {lines[0]}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{source} is no masked language model: it has no weights for {missing[0]}.",
            hint="a checkpoint that was saved with its pretraining head, such as bert-base-uncased, is one",
        )
    module: nn.Module = model
    assert isinstance(module, PreTrainedModel)
    return module
