"""A sliding window for question answering: a name or number of the sentence nearest to the question.

The sentence is the one that shares most with the question, the name the one nearest to the shared words. After the
baseline of Richardson et al. (MCTest, 2013), with which SQuAD was published together with its logistic regression.
Words weigh more the fewer contexts they occur in. Where training has questions without an answer, how much must be
shared for an answer to be given is tuned on some of its rows.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compress.measure.baselines.bag_of_words import sample_rows
from compress.model_folder.model_info import TaskInfo
from compress.tasks import kind_of
from compress.tasks.base import Row
from compress.tasks.kinds.question_answering import prediction_fields

WORD = re.compile(r"\w+(?:[.,'-]\w+)*%?")
SENTENCE_END = re.compile(r"[.!?]['\")\]]*\s+(?=[A-Z\d\"'(\[])")
NUMBERS = ("when", "many", "much", "year", "old", "percentage", "long", "far", "century", "date")
"""Words in questions whose answer is a number."""
LONGEST = 6
"""Words of an answer, at most."""
TUNED_ON = 1000
"""Training rows on which the threshold is tuned, at most."""


class Word(NamedTuple):
    """A word of a context with its position."""

    text: str
    start: int
    end: int


class Passage(NamedTuple):
    """The position of an answer, and the share of the question's words in its sentence."""

    start: int
    end: int
    shared: float


def sliding_window(
    train_rows: Sequence[Row], test_rows: Sequence[Row], task: TaskInfo, seed: int = 0, documents: Sequence[Row] = ()
) -> NDArray[Any]:
    """Return predictions on ``test_rows``."""
    kind, chosen = kind_of(task), sample_rows(train_rows, seed, TUNED_ON)
    weights = word_weights(row["context"] for row in chosen)
    tried = _answers(chosen, weights)
    tuned = kind.tune_threshold(tried, kind.gold(chosen), task)
    return kind.apply_threshold(_answers(test_rows, weights), tuned)


def word_weights(contexts: Iterator[str]) -> Mapping[str, float]:
    """Return the weight of each word, its logarithmic inverse document frequency; `""` for words of no context."""
    counts = Counter[str]()
    for context in contexts:
        counts.update({"", *(word.lower() for word in WORD.findall(context))})
    total = 1 + counts.pop("", 0)
    return {"": math.log(total), **{word: math.log(total / count) for word, count in counts.items()}}


def best_passage(question: str, context: str, weights: Mapping[str, float]) -> Passage:
    """Return the answer of one row."""
    question_words = {word: weights.get(word, weights[""]) for word in map(str.lower, WORD.findall(question))}
    sentences = list(_sentences(context))
    if not sentences:
        return Passage(-1, -1, 0.0)
    texts = [{word.text.lower() for word in words} for words in sentences]
    shares = [sum(weight for word, weight in question_words.items() if word in text) for text in texts]
    best = max(range(len(sentences)), key=shares.__getitem__)
    words = max(
        _candidates(sentences[best], question_words), key=lambda span: _closeness(span, sentences[best], question_words)
    )
    first, last = sentences[best][words[0]], sentences[best][words[1]]
    return Passage(first.start, last.end, shares[best] / (sum(question_words.values()) or 1.0))


def _sentences(context: str) -> Iterator[list[Word]]:
    ends = [0, *(match.end() for match in SENTENCE_END.finditer(context)), len(context)]
    for start, end in pairwise(ends):
        if words := [Word(word.group(), word.start(), word.end()) for word in WORD.finditer(context, start, end)]:
            yield words


def _candidates(words: Sequence[Word], question_words: Mapping[str, float]) -> list[tuple[int, int]]:
    """Return first and last word of possible answers: names, numbers if the question wants one, or single words."""
    wants_number = any(word in question_words for word in NUMBERS)

    def fits(position: int) -> bool:
        text = words[position].text
        looks = text[0].isdigit() if wants_number else text[0].isupper() or text[0].isdigit()
        return looks and text.lower() not in question_words and (position > 0 or text[0].isdigit() or len(text) > 3)

    marks = [fits(position) for position in range(len(words))]
    others = [(position, position) for position, word in enumerate(words) if word.text.lower() not in question_words]
    return _runs(marks) or others or [(0, min(len(words), LONGEST) - 1)]


def _runs(marks: Sequence[bool]) -> list[tuple[int, int]]:
    """Return first and last position of runs of marked positions, of at most `LONGEST`."""
    runs: list[tuple[int, int]] = []
    for position in np.flatnonzero(marks).tolist():
        start = runs[-1][0] if runs and runs[-1][1] == position - 1 else position
        if start < position and position - start < LONGEST:
            runs[-1] = (start, position)
        else:
            runs.append((position, position))
    return runs


def _closeness(span: tuple[int, int], words: Sequence[Word], question_words: Mapping[str, float]) -> float:
    """Return the weight of the question's words in the sentence, divided by their distance from the candidate."""
    near = 0.0
    for position, word in enumerate(words):
        near += question_words.get(word.text.lower(), 0.0) / max(1, span[0] - position, position - span[1])
    return near


def _answers(rows: Sequence[Row], weights: Mapping[str, float]) -> NDArray[Any]:
    """Return passages as predictions; their score is the share of the question, no answer scores zero."""
    passages = [(row["context"], best_passage(row["question"], row["context"], weights)) for row in rows]
    width = max((passage.end - passage.start for _, passage in passages), default=0)
    lines = [
        (context[max(0, at.start) : max(0, at.end)], at.start, at.end, at.shared, 0.0, at.shared, at.start >= 0, 1.0)
        for context, at in passages
    ]
    return np.array(lines, dtype=prediction_fields(width))
