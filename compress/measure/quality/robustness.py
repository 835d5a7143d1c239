"""Perturbations of texts that readers hardly notice, to measure what they cost a model. Pure, seeded by row.

Belinkov and Bisk (2018) showed how much a few typing errors cost; changed case and truncated texts are also common in
real input and rare in test sets. A new one is a function and a line in the table.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from compress.errors import UsageError
from compress.tasks.base import LazyRows, Row
from compress.tasks.kind import Kind

Perturb = Callable[[str, Random], str]
"""(text, random numbers) -> changed text."""

TYPO_SHARE = 0.1
"""Share of words that get a typing error; at least one in each text with a word that is long enough."""
SHORTEST_WORD = 4
"""Letters of the shortest word that is changed: `not` never becomes `no`."""
UNSPACED = 30
"""Characters from which a text of a single word counts as a script without spaces, and is halved by characters."""

WORD = re.compile(r"[^\W\d_]+")
NO_SPACE = re.compile(r"\S+")
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def typos(text: str, random: Random) -> str:
    """One typing error in a tenth of the words: letters swapped, dropped, doubled or replaced by a neighbouring key."""
    spans = [match.span() for match in WORD.finditer(text) if len(match.group()) >= SHORTEST_WORD]
    if not spans:
        return text
    count = max(1, round(TYPO_SHARE * len(spans)))
    for start, end in sorted(random.sample(spans, count), reverse=True):
        text = text[:start] + _mistyped(text[start:end], random) + text[end:]
    return text


def lowercase(text: str, random: Random) -> str:
    """All letters lower case; an uncased model sees no difference."""
    return text.lower()


def uppercase(text: str, random: Random) -> str:
    """All letters upper case; an uncased model sees no difference."""
    return text.upper()


def truncation(text: str, random: Random) -> str:
    """The first half of the words, at least one."""
    words = list(NO_SPACE.finditer(text))
    if len(words) == 1 and len(text) >= UNSPACED:
        return text[: len(text) // 2]
    return text[: words[(len(words) - 1) // 2].end()] if words else text


PERTURBATIONS: Mapping[str, Perturb] = {
    "typos": typos,
    "lowercase": lowercase,
    "uppercase": uppercase,
    "truncation": truncation,
}


class PerturbedRows(LazyRows):
    """The rows with the texts of ``kind.perturbable`` changed, lazily and with a seed of its own for each."""

    def __init__(self, rows: Sequence[Row], kind: Kind, name: str, seed: int) -> None:
        if not kind.perturbable:
            raise UsageError(f"{kind.name} has no text that could change without changing its answer.")
        self._rows, self._fields, self._seed = rows, kind.perturbable, f"{seed} {name}"
        self._perturb = PERTURBATIONS[name]

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, index: int) -> Row:
        """Return one perturbed row."""
        row, random = self._rows[index], Random(f"{self._seed} {index}")
        changed = {field: _changed(row[field], self._perturb, random) for field in self._fields if field in row}
        return {**row, **changed}


def _changed(value: Any, perturb: Perturb, random: Random) -> Any:
    """Perturb a text or a list of texts; None (no second text) stays."""
    if isinstance(value, str):
        return perturb(value, random)
    if isinstance(value, list):
        return [_changed(each, perturb, random) for each in value]
    return value


def _mistyped(word: str, random: Random) -> str:
    """Return ``word`` with one error after its first letter, which people seldom mistype."""
    index = random.randrange(1, len(word) - 1)
    kind = random.choice(("swap", "drop", "double", "miss"))
    if kind == "swap" and word[index] != word[index + 1]:
        return word[:index] + word[index + 1] + word[index] + word[index + 2 :]
    if kind == "drop":
        return word[:index] + word[index + 1 :]
    added = _neighbour(word[index], random) if kind == "miss" else word[index] * 2
    return word[:index] + added + word[index + 1 :]


def _neighbour(letter: str, random: Random) -> str:
    """Return a key next to ``letter`` on the keyboard; a letter without a key is doubled."""
    for keys in KEYS:
        index = keys.find(letter.lower())
        if index >= 0:
            typo = random.choice(keys[max(0, index - 1) : index] + keys[index + 1 : index + 2])
            return typo.upper() if letter.isupper() else typo
    return letter * 2
