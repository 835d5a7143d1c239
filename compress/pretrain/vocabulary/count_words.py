"""Counts the words of a corpus as a tokenizer sees them: normalized, and split as before its pieces are looked up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer

from compress.models.masked_lm import WORD_STARTS

MAX_WORDS = 2**20
"""Distinct words that are counted at once; beyond it the rarest are forgotten, so that memory stays flat."""
WORD = re.compile(r"\s?(\w+)")


def count_words(texts: Iterable[str], tokenizer: Tokenizer, most: int = MAX_WORDS) -> Counter[str]:
    """Return how often each word occurs, with a space before it where the tokenizer marks the starts of words.

    With more than ``most`` distinct words those that are rare are left out. Punctuation that a tokenizer does not
    separate (SentencePiece: `▁word,`) is no part of a word.
    """
    counts = Counter[str]()
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
