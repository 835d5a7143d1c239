"""How much of an answer's text is right: SQuAD's exact match and F1 (Rajpurkar and others, 2016 and 2018). Pure.

Both compare texts without case, punctuation, articles and double spaces, and take the best of the accepted answers. F1
is that of the words two texts share. Where a question has no answer, only giving none is right.
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
def words(text: str) -> tuple[str, ...]:
    """The words that count: lower case, without punctuation (`U.S.` is `us`), then without articles."""
    return tuple(ARTICLE.sub(" ", text.lower().translate(PUNCTUATION)).split())


def f1(answer: str, true: str) -> float:
    """The harmonic mean of the shares of either text's words that the other has too, each as often as it stands."""
    ours, theirs = words(answer), words(true)
    if not ours or not theirs:
        return float(ours == theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2.0 * shared / (len(ours) + len(theirs))


def match(answer: str, accepted: Sequence[str]) -> tuple[bool, float]:
    """Whether the answer is one of those accepted, and its best F1; "" is no answer, which is right where none is."""
    # An accepted answer of articles and punctuation alone has no words left to compare.
    told = [text for text in accepted if words(text)] or [""]
    return any(words(answer) == words(text) for text in told), max(f1(answer, text) for text in told)
