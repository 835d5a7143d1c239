"""Small changes to texts that a reader would hardly notice, to see what they cost a model. Pure, seeded by row.

Belinkov and Bisk (2018) showed how much a few typing errors cost; case and cut-off texts are the other two things that
real input does and test sets do not. Adding one is a function and a line in the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from compress.errors import UsageError, nearest
from compress.tasks.base import Kind, Row
from compress.tasks.parsing.lazy_rows import LazyRows

Perturb = Callable[[str, Random], str]
"""(text, source of chance) -> changed text."""

TYPO_SHARE = 0.1
"""Words that get a typing error; at least one in each text that has a word to spoil."""
SHORTEST_WORD = 4
"""Letters of the shortest word that is spoiled: `not` is not turned into `no`."""
UNSPACED = 30
"""Characters from which a text of a single word is taken for a script without spaces, and halved by characters."""

WORD = re.compile(r"[^\W\d_]+")
NO_SPACE = re.compile(r"\S+")
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def typos(text: str, random: Random) -> str:
    """One typing error in a tenth of the words: neighbours swapped, a letter left out, doubled or mistaken."""
    places = [found.span() for found in WORD.finditer(text) if len(found.group()) >= SHORTEST_WORD]
    if not places:
        return text
    count = max(1, round(TYPO_SHARE * len(places)))
    for start, end in sorted(random.sample(places, count), reverse=True):
        text = text[:start] + _mistyped(text[start:end], random) + text[end:]
    return text


def lowercase(text: str, random: Random) -> str:
    """All letters small; an uncased model sees no difference."""
    return text.lower()


def uppercase(text: str, random: Random) -> str:
    """All letters capital; an uncased model sees no difference."""
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
    """The rows with the texts of ``kind.perturbable`` changed, each when it is looked at and by a seed of its own."""

    def __init__(self, rows: Sequence[Row], kind: Kind, name: str, seed: int) -> None:
        if name not in PERTURBATIONS:
            raise UsageError(f"no perturbation is called '{name}'{nearest(name, PERTURBATIONS)}.")
        if not kind.perturbable:
            raise UsageError(f"{kind.name} has no text that could change without changing its answer.")
        self._rows, self._fields, self._seed = rows, kind.perturbable, f"{seed} {name}"
        self._perturb = PERTURBATIONS[name]

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, place: int) -> Row:
        """One row, changed."""
        row, random = self._rows[place], Random(f"{self._seed} {place}")
        changed = {field: _changed(row[field], self._perturb, random) for field in self._fields if field in row}
        return {**row, **changed}


def _changed(value: Any, perturb: Perturb, random: Random) -> Any:
    """A text, a list of texts, or nothing at all (the second text of a row that has one)."""
    if isinstance(value, str):
        return perturb(value, random)
    if isinstance(value, list):
        return [_changed(each, perturb, random) for each in value]
    return value


def _mistyped(word: str, random: Random) -> str:
    """``word`` with one error behind its first letter, which people seldom mistype."""
    place = random.randrange(1, len(word) - 1)
    kind = random.choice(("swap", "drop", "double", "miss"))
    if kind == "swap" and word[place] != word[place + 1]:
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    if kind == "drop":
        return word[:place] + word[place + 1 :]
    if kind == "miss":
        return word[:place] + _neighbour(word[place], random) + word[place + 1 :]
    return word[: place + 1] + word[place] + word[place + 1 :]


def _neighbour(letter: str, random: Random) -> str:
    """A key beside ``letter`` on its row of a keyboard; a letter that no key has is doubled."""
    for keys in KEYS:
        place = keys.find(letter.lower())
        if place >= 0:
            found = random.choice(keys[max(0, place - 1) : place] + keys[place + 1 : place + 2])
            return found.upper() if letter.isupper() else found
    return letter * 2
