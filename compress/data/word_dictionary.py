"""A dictionary of words and their pieces, filled from the texts that are read: most texts then need no tokenizer.

It is exact where the tokenizer cuts every word between two spaces by itself, as those of the BERT family do: a word is
cut once by the tokenizer, and looked up from then on. Other tokenizers have no dictionary.
"""

from __future__ import annotations

from itertools import chain

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer, Lowercase
from tokenizers.pre_tokenizers import BertPreTokenizer, Whitespace, WhitespaceSplit

MOST_WORDS = 1 << 15
"""Words that are kept, about 7 MB; the first ones to come are mostly the frequent ones."""
MOST_CHARACTERS = 32
"""Of a word that is kept."""
FEW = 5
"""One in so many words may be new once the dictionary is full: alone, a word costs the tokenizer about so many times
what it costs as a part of a text."""
BY_CHARACTER = (BertNormalizer, Lowercase, type(None))
"""Normalizers that treat each character by itself."""
AT_SPACES = (BertPreTokenizer, Whitespace, WhitespaceSplit)
"""What cuts at every space, and remembers nothing of what was before it."""


class WordDictionary:
    """The pieces of each word, as it is written between two spaces; threads may share it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pieces: dict[str, tuple[int, ...]] = {"": ()}

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> WordDictionary | None:
        """Return an empty dictionary; None where a word's pieces may depend on other words.

        ``tokenizer`` adds no special tokens, and does not truncate.
        """
        cuts_words = (
            isinstance(tokenizer.model, WordPiece)
            and isinstance(tokenizer.normalizer, BY_CHARACTER)
            and isinstance(tokenizer.pre_tokenizer, AT_SPACES)
        )
        added = tokenizer.get_added_tokens_decoder().values()
        return cls(tokenizer) if cuts_words and not any(" " in token.content for token in added) else None

    def pieces(self, text: str) -> list[int] | None:
        """Return the pieces of a text; None where the tokenizer is faster: many words are new, and none can be kept."""
        words = text.split(" ")
        found = [self._pieces.get(word) for word in words]
        new = found.count(None)
        if new and len(self._pieces) >= MOST_WORDS and new * FEW > len(words):
            return None
        known = (self._cut(word) if pieces is None else pieces for word, pieces in zip(words, found, strict=True))
        return [*chain.from_iterable(known)]

    def _cut(self, word: str) -> tuple[int, ...]:
        pieces = tuple(self._tokenizer.encode(word).ids)
        if len(self._pieces) < MOST_WORDS and len(word) <= MOST_CHARACTERS:
            self._pieces[word] = pieces
        return pieces
