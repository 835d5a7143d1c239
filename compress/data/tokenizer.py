"""Text to pieces from a folder's tokenizer.json, without transformers or torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from compress.errors import DataError, ModelError
from compress.families import max_positions
from compress.tasks.base import Encoding

TOKENIZER_FILE = "tokenizer.json"


class _Limit(NamedTuple):
    """How the tokenizer is set to cut."""

    most: int
    is_pair: bool
    overlap: int | None = None
    """Pieces that windows share; None: what is too much is dropped."""


class TextTokenizer:
    """The tokenizer of a model folder.

    Truncation takes pieces from the longer text of a pair first; padding is left to the batch.
    """

    def __init__(
        self, tokenizer: Tokenizer, pad_id: int, longest: int | None = None, source: str = "in memory"
    ) -> None:
        """``longest`` is the most pieces that the model has positions for, None where it does not say."""
        self._tokenizer = tokenizer
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._limit: _Limit | None = None
        self._source = source
        self.pad_id = pad_id
        self.longest = longest

    @classmethod
    def load(cls, folder: Path, source: str | None = None) -> TextTokenizer:
        """Read ``folder``'s tokenizer.json, and from its configuration the pad id and the number of positions.

        ``source`` is what errors call the model: by default its folder.
        """
        path = folder / TOKENIZER_FILE
        if not path.is_file():
            raise ModelError(
                f"{folder} has no {TOKENIZER_FILE}.",
                hint="save it with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
            )
        try:
            tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        # tokenizers raises a bare Exception for whatever it cannot read.
        except Exception as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
        config = _read_json(folder / "config.json")
        pad_id = _pad_id(folder, config, tokenizer)
        return cls(tokenizer, pad_id, max_positions(config, pad_id), source=source or str(folder))

    def __call__(self, text: str, pair: str | None, most: int) -> Encoding:
        """The pieces of a text or pair, special ones included, cut to ``most``."""
        self._limit_to(_Limit(most, pair is not None))
        found = self._tokenizer.encode(text) if pair is None else self._tokenizer.encode(text, pair)
        return Encoding(input_ids=found.ids, token_type_ids=found.type_ids, truncated=bool(found.overflowing))

    def windows(self, text: str, pair: str | None, most: int, overlap: int, limit: int) -> list[Encoding]:
        """The last text in windows of up to ``most`` pieces that share ``overlap``; the first is whole in each.

        Where more than ``limit`` would be needed the last one is marked as truncated.
        """
        special = self._tokenizer.num_special_tokens_to_add(pair is not None)
        first = 0 if pair is None else self._count(text)
        room = most - special - first
        if room < 1:
            raise DataError(
                f"a text of {first} pieces leaves no room for the one beside it where {most} are read together.",
                hint="a greater task.max_length, or shorter texts in that column",
            )
        # Windows must move on: at least by half of what they hold.
        self._limit_to(_Limit(most, pair is not None, min(overlap, room // 2)))
        found = self._tokenizer.encode(text) if pair is None else self._tokenizer.encode(text, pair)
        every = [found, *found.overflowing]
        last, shown = (0, text) if pair is None else (1, pair)
        return [_window(each, last, shown, len(every) > limit and each is every[limit - 1]) for each in every[:limit]]

    def _count(self, text: str) -> int:
        """All pieces of a text, without special ones."""
        self._tokenizer.no_truncation()
        self._limit = None
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _limit_to(self, limit: _Limit) -> None:
        if limit == self._limit:
            return
        most = limit.most
        check_length(most, self.longest, self._source)
        special = self._tokenizer.num_special_tokens_to_add(limit.is_pair)
        if most <= special:
            raise ModelError(f"a length of {most} pieces leaves no room for text beside {special} special ones.")
        if limit.overlap is None:
            self._tokenizer.enable_truncation(max_length=most, strategy="longest_first")
        else:
            strategy = "only_second" if limit.is_pair else "longest_first"
            self._tokenizer.enable_truncation(max_length=most, stride=limit.overlap, strategy=strategy)
        self._limit = limit


def _window(found: Any, last: int, text: str, truncated: bool) -> Encoding:
    spans = [
        _without_space(text, start, end) if sequence == last else (-1, -1)
        for (start, end), sequence in zip(found.offsets, found.sequence_ids, strict=True)
    ]
    return Encoding(found.ids, found.type_ids, truncated, spans)


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    """The characters of a piece but the space around them, which some tokenizers count in: none are left of a space."""
    piece = text[start:end].lstrip()
    return end - len(piece), end - len(piece) + len(piece.rstrip())


def _pad_id(folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer) -> int:
    """The model's own word first (RoBERTa counts positions by it), then the tokenizer's."""
    if isinstance(config.get("pad_token_id"), int):
        return int(config["pad_token_id"])
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        token = _read_json(folder / name).get("pad_token")
        token = token.get("content") if isinstance(token, Mapping) else token
        found = tokenizer.token_to_id(token) if isinstance(token, str) else None
        if found is not None:
            return int(found)
    for token in ("[PAD]", "<pad>"):
        found = tokenizer.token_to_id(token)
        if found is not None:
            return int(found)
    raise ModelError(
        f"{folder} names no padding piece: neither config.json (pad_token_id) nor tokenizer_config.json (pad_token)."
    )


def check_length(most: int, longest: int | None, source: str) -> None:
    """Refuse texts of more pieces than the model ``source`` has positions for."""
    if longest is not None and most > longest:
        raise ModelError(
            f"texts may be {most} pieces long, but the model {source} has {longest} positions.",
            hint=f"task.max_length: {longest} or less",
        )


def _read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object, or an empty one where there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    return content if isinstance(content, Mapping) else {}
