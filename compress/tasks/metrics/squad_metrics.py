"""SQuAD's exact match and F1 of answer texts (Rajpurkar and others, 2016 and 2018). Pure.

Both compare texts without case, punctuation, articles and double spaces, and take the best of the accepted answers. F1
is that of the words two texts share. Where a question has no answer, only predicting none is right.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

ARTICLE = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


@lru_cache(maxsize=1 << 16)
def normalized_words(text: str) -> tuple[str, ...]:
    """Return the words that count: lower case, without punctuation (`U.S.` is `us`), then without articles."""
    return tuple(ARTICLE.sub(" ", text.lower().translate(PUNCTUATION)).split())


def word_f1(answer: str, true: str) -> float:
    """Return the harmonic mean of the shares of either text's words that the other has too, counting repetitions."""
    ours, theirs = normalized_words(answer), normalized_words(true)
    if not ours or not theirs:
        return float(ours == theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2.0 * shared / (len(ours) + len(theirs))


def match_answers(answer: str, accepted: Sequence[str]) -> tuple[bool, float]:
    """Return whether the answer is an accepted one, and its best F1; "" is no answer, right where none is accepted."""
    # An accepted answer of articles and punctuation alone has no words left to compare.
    texts = [text for text in accepted if normalized_words(text)] or [""]
    ours = normalized_words(answer)
    return any(ours == normalized_words(text) for text in texts), max(word_f1(answer, text) for text in texts)
