"""Text to tokens, from a folder's tokenizer.json, without transformers or torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from compress.data.word_dictionary import WordDictionary
from compress.errors import DataError, ModelError
from compress.families import max_positions
from compress.tasks.base import Encoding

TOKENIZER_FILE = "tokenizer.json"
LONG_WORD = 32
"""Characters a token that a text may begin with before more of it than that is read."""
SAMPLE = "a"
"""A text of at least one token, in most tokenizers."""


class TextTokenizer:
    """The tokenizer of a model folder. Threads may share it: no call changes its state.

    Truncation takes tokens from the longer text of a pair first; padding is left to the batch. Both are done here, on
    the encoding of each call, and special tokens are added after it: the settings of a `tokenizers.Tokenizer`, which
    would do the same, apply to all threads at once.
    """

    def __init__(
        self, tokenizer: Tokenizer, pad_id: int, longest: int | None = None, source: str = "in memory"
    ) -> None:
        """Take over a tokenizer, which is changed and must not be used for anything else.

        Args:
            tokenizer: as read from tokenizer.json.
            pad_id: of the padding token.
            longest: the number of positions that the model has, None if unknown.
            source: the model's name in error messages.
        """
        self._tokenizer = tokenizer
        self._processor = tokenizer.post_processor or TemplateProcessing(single="$A", pair="$A $B:1")
        tokenizer.post_processor = None
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._words = WordDictionary.of(tokenizer)
        self._source = source
        self.pad_id = pad_id
        self.longest = longest

    @classmethod
    def load(cls, folder: Path, source: str | None = None) -> TextTokenizer:
        """Read ``folder``'s tokenizer.json, and from its configuration the pad id and the number of positions.

        ``source`` is the model's name in error messages: by default its folder.
        """
        tokenizer = read_tokenizer(folder)
        config = read_json(folder / "config.json")
        pad_id = _pad_id(folder, config, tokenizer)
        return cls(tokenizer, pad_id, max_positions(config, pad_id), source=source or str(folder))

    def __call__(self, text: str, pair: str | None, max_tokens: int) -> Encoding:
        """Return the tokens of a text or pair, special tokens included, cut to ``max_tokens``."""
        limit = self._text_tokens(max_tokens, pair is not None)
        texts = (text,) if pair is None else (text, pair)
        parts = self._looked_up(texts, limit)
        if parts is None:
            encode = partial(self._encode, tokens=limit) if pair is None else self._tokenizer.encode
            parts = [encode(each).ids for each in texts]
        lengths, ids, types = [*map(len, parts)], list[int](), list[int]()
        parts = [part[:kept] for part, kept in zip(parts, _kept(lengths, limit), strict=True)]
        # Not by the library's processor: of two texts that are cut it makes every pair of what it keeps of both.
        for entry in self._templates[len(parts) == 2]:
            added = parts[entry["sequence"]] if "sequence" in entry else [entry["id"]]
            ids += added
            types += [entry["type"]] * len(added)
        return Encoding(ids, types, sum(lengths) > limit)

    def _looked_up(self, texts: Sequence[str], limit: int) -> list[list[int]] | None:
        """Return the pieces of texts whose words are all in the dictionary; None for others, and for long ones."""
        if self._words is None or max(map(len, texts)) > limit * LONG_WORD:
            return None
        parts = list[list[int]]()
        for text in texts:
            if (pieces := self._words.pieces(text)) is None:
                return None
            parts.append(pieces)
        return parts

    def windows(self, text: str, pair: str | None, max_tokens: int, overlap: int, limit: int) -> list[Encoding]:
        """Return the last text in windows of up to ``max_tokens`` that share ``overlap``; the first is in each of them.

        Where more than ``limit`` would be needed the last one is marked as truncated.
        """
        most = max_tokens * (limit + 1)
        first = self._encode(text, most) if pair is None else self._tokenizer.encode(text)
        second = None if pair is None else self._encode(pair, most)
        fixed = 0 if second is None else len(first)
        available = self._text_tokens(max_tokens, pair is not None) - fixed
        if available < 1:
            raise DataError(
                f"a text of {fixed} tokens leaves no room for the other text of its pair in {max_tokens} tokens.",
                hint="a greater task.max_length, or shorter texts in that column",
            )
        # Windows must advance: at least by half of what they hold.
        last = first if second is None else second
        last.truncate(available, stride=min(overlap, available // 2))
        parts = [last, *last.overflowing]
        process = self._processor.process
        encodings = [process(part) if second is None else process(first, part) for part in parts[:limit]]
        cut = [len(parts) > limit and number == limit for number in range(1, len(encodings) + 1)]
        sequence, source = (0, text) if pair is None else (1, pair)
        return [_window(each, sequence, source, is_cut) for each, is_cut in zip(encodings, cut, strict=True)]

    def _encode(self, text: str, tokens: int) -> Any:
        """Return more than so many of a text's tokens, where it has more; a long text is not read to its end.

        Words are cut into tokens one by one, so the tokens of a text's first words are its first tokens.
        """
        size = tokens * LONG_WORD
        while size < len(text) and self._tokenizer.pre_tokenizer is not None:
            begin = self._tokenizer.encode(text[: max(0, text.rfind(" ", 0, size), text.rfind("\n", 0, size))])
            if len(begin) <= tokens:
                begin = self._tokenizer.encode(text[: self._last_word(text[:size])])
            if len(begin) > tokens:
                return begin
            size *= 4
        return self._tokenizer.encode(text)

    def _last_word(self, text: str) -> int:
        """Return where the last word of a text begins: words of Chinese and signs have no spaces between them."""
        encoded = self._tokenizer.encode(text)
        starts = {word: start for word, (start, _) in zip(encoded.word_ids[::-1], encoded.offsets[::-1], strict=True)}
        return int(starts[encoded.word_ids[-1]]) if starts else 0

    @cached_property
    def _templates(self) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
        """Of one text, and of two."""
        return self.template(is_pair=False), self.template(is_pair=True)

    def template(self, *, is_pair: bool) -> list[dict[str, int]]:
        """Return the order of special tokens (with their ``id``) and of the texts (``sequence`` 0 or 1), with types."""
        sample = self._tokenizer.encode(SAMPLE)
        if not len(sample):
            sample = next(each for each in map(self._tokenizer.encode, self._tokenizer.get_vocab()) if len(each))
        sample.truncate(1)
        whole = self._processor.process(sample, sample if is_pair else None)
        return [
            {"id": token, "type": kind} if sequence is None else {"sequence": sequence, "type": kind}
            for token, kind, sequence in zip(whole.ids, whole.type_ids, whole.sequence_ids, strict=True)
        ]

    def digest(self) -> str:
        """Return a digest of everything that decides into which tokens a text is cut, and of how long it may be."""
        parts = (self._tokenizer.to_str(), self._processor.__getstate__().decode(), str(self.longest))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _text_tokens(self, max_tokens: int, is_pair: bool) -> int:
        """Return how many of ``max_tokens`` are left for text."""
        check_length(max_tokens, self.longest, self._source)
        special = self._processor.num_special_tokens_to_add(is_pair)
        if max_tokens <= special:
            raise ModelError(f"{max_tokens} tokens leave no room for text: {special} are special tokens.")
        return max_tokens - special


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read ``folder``'s tokenizer.json."""
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        hint = "save it with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
        raise ModelError(f"{folder} has no {TOKENIZER_FILE}.", hint=hint)
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    # tokenizers raises a bare Exception for any file that it cannot read.
    except Exception as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


def whole_texts(content: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json, which neither truncates nor pads."""
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _kept(lengths: Sequence[int], limit: int) -> list[int]:
    """Return how many tokens of each text are kept, as `longest_first` of the tokenizers library does.

    The longer text of two is cut first, then both to half of the limit.
    """
    if len(lengths) == 1:
        return [limit]
    short = min(*lengths, limit // 2)
    return [short, limit - short] if lengths[0] <= lengths[1] else [limit - short, short]


def _window(encoding: Any, sequence: int, text: str, truncated: bool) -> Encoding:
    spans = [
        _strip_span(text, start, end) if number == sequence else (-1, -1)
        for (start, end), number in zip(encoding.offsets, encoding.sequence_ids, strict=True)
    ]
    return Encoding(encoding.ids, encoding.type_ids, truncated, spans)


def _strip_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a token's characters without surrounding space, which some tokenizers include; empty for a space."""
    token = text[start:end].lstrip()
    return end - len(token), end - len(token) + len(token.rstrip())


def _pad_id(folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer) -> int:
    """Return the model's own pad id (RoBERTa counts positions from it), else the tokenizer's."""
    if isinstance(config.get("pad_token_id"), int):
        return int(config["pad_token_id"])
    given = [read_json(folder / name).get("pad_token") for name in ("tokenizer_config.json", "special_tokens_map.json")]
    names = [token.get("content") if isinstance(token, Mapping) else token for token in given]
    for name in (*names, "[PAD]", "<pad>"):
        pad_id = tokenizer.token_to_id(name) if isinstance(name, str) else None
        if pad_id is not None:
            return int(pad_id)
    raise ModelError(
        f"{folder} names no padding token: neither config.json (pad_token_id) nor tokenizer_config.json (pad_token)."
    )


def check_length(max_tokens: int, longest: int | None, source: str) -> None:
    """Raise a ModelError if the model ``source`` has fewer positions than ``max_tokens``."""
    if longest is not None and max_tokens > longest:
        raise ModelError(
            f"texts may be {max_tokens} tokens long, but the model {source} has {longest} positions.",
            hint=f"task.max_length: {longest} or less",
        )


def read_json(path: Path) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one if there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    return content if isinstance(content, Mapping) else {}
