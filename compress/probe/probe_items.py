"""The items of a task: what a probe reads of the states, and the answer that should follow from it.

The texts of all tasks are in one list, so that each is encoded once for each model however many tasks read it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from compress.errors import DataError

Answers = Literal["classes", "labels", "number"]
"""One of several classes; any of several labels; a number."""
Reads = Literal["text", "word", "two texts"]
"""The mean vector of a text; that of a word's pieces; the difference and product of the vectors of two texts."""


@dataclass
class Corpus:
    """The distinct texts that are encoded, and the words of them whose vectors are kept."""

    texts: dict[tuple[str, str | None], int] = field(default_factory=dict)
    """Text and its pair -> number."""
    words: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """(text, first character, end) of a word in the last text of a pair -> number."""

    def add_text(self, text: str, pair: str | None = None) -> int:
        """Return the number of a text."""
        return self.texts.setdefault((text, pair), len(self.texts))

    def add_word(self, text: int, start: int, end: int) -> int:
        """Return the number of a word."""
        return self.words.setdefault((text, start, end), len(self.words))


@dataclass(frozen=True)
class ProbeTask:
    """One question to the states, with the items that it is asked of."""

    name: str
    reads: Reads
    answers: Answers
    classes: tuple[str, ...]
    """Of classes and labels."""
    items: NDArray[np.int64]
    """(items, 1), or (items, 2) for two texts: numbers in the corpus."""
    targets: NDArray[Any]
    """(items,) classes or numbers; (items, labels) marks."""
    groups: NDArray[np.int64]
    """The row of each item: rows are drawn together in a bootstrap."""
    held_out: NDArray[np.bool_]
    """The items that the probe is scored on; it is fitted to the others."""
    words: tuple[str, ...] = ()
    """Of word tasks, the word of each item: control tasks give each word one random label."""

    @property
    def has_control(self) -> bool:
        """Whether a control task can be made of it."""
        return bool(self.words) and self.answers == "classes"


def check_varied(task: ProbeTask) -> ProbeTask:
    """Refuse a task whose answers are all alike, on the rows it is fitted to or those it is scored on."""
    for part, mask in (("train", ~task.held_out), ("select", task.held_out)):
        targets = task.targets[mask]
        if len(targets) < 2:
            raise DataError(f"{task.name} has {len(targets)} items in {part}: too few for a probe.")
        if (targets == targets[0]).all():
            said = f"labelled {task.classes[int(targets[0])]}" if task.answers == "classes" else "labelled alike"
            raise DataError(f"{task.name} cannot be probed: every item of {part} is {said}.")
    return task


@dataclass
class ItemList:
    """Collects the items of a task."""

    items: list[tuple[int, ...]] = field(default_factory=list)
    targets: list[Any] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    held_out: list[bool] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def add(self, held_out: bool, group: int, item: tuple[int, ...], target: Any, word: str | None = None) -> None:
        """Add an item of a row."""
        self.items.append(item)
        self.targets.append(target)
        self.groups.append(group)
        self.held_out.append(held_out)
        if word is not None:
            self.words.append(word)

    def task(
        self,
        name: str,
        reads: Reads,
        answers: Answers,
        classes: Iterable[str],
        most: int | None = None,
        seed: int = 0,
        corpus: Corpus | None = None,
    ) -> ProbeTask:
        """Return the task of these items, or of a sample of the ``most``.

        With a ``corpus`` items are words (text, first character, end), of which the chosen ones become part of it.
        """
        if not self.items:
            raise DataError(f"{name} has no items: no row has what it asks for.")
        chosen = np.arange(len(self.items))
        if most is not None and len(chosen) > most:
            chosen = np.sort(np.random.default_rng(seed).permutation(chosen)[:most])
        items = [self.items[index] for index in chosen.tolist()]
        if corpus is not None:
            items = [(corpus.add_word(*word),) for word in items]
        dtype = np.int64 if answers == "classes" else np.float32
        return check_varied(
            ProbeTask(
                name=name,
                reads=reads,
                answers=answers,
                classes=tuple(classes),
                items=np.array(items, dtype=np.int64).reshape(len(items), -1),
                targets=np.array(self.targets, dtype=dtype)[chosen],
                groups=np.array(self.groups, dtype=np.int64)[chosen],
                held_out=np.array(self.held_out, dtype=np.bool_)[chosen],
                words=tuple(self.words[index] for index in chosen.tolist()) if self.words else (),
            )
        )


def text_words(text: str) -> Iterator[tuple[int, int]]:
    """Yield the first character and the end of each word of a text, as white space separates them."""
    start = 0
    for word in text.split():
        start = text.index(word, start)
        yield start, start + len(word)
        start += len(word)
