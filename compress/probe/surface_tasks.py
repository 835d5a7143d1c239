"""Tasks that are made of texts alone: their length, a word they contain, swapped words, removed punctuation.

After Conneau et al., "What you can cram into a single $&!#* vector", 2018 (arXiv:1805.01070), for whatever texts a
recipe has. A half of the texts of the last two is changed, never both forms of one text.
"""

import itertools
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from compress.errors import DataError
from compress.probe.probe_items import Corpus, ItemList, ProbeTask

Texts = Sequence[tuple[bool, int, str]]
"""(held out, row, text)."""

LENGTH_CLASSES = 6
MOST_WORDS, LEAST_TEXTS = 50, 20
"""Words that are asked for at most, and texts that each needs."""
LEAST_SELECTED = 100
"""Texts that a task needs."""
LEAST_SWAPPED = 4
"""Words of a text in which two are swapped."""
STRIPPED = str.maketrans("", "", string.punctuation)


def length(texts: Texts, corpus: Corpus, seed: int) -> ProbeTask:
    """Return the number of words of a text, in classes of about equal size."""
    counts = [len(text.split()) for _, _, text in texts]
    shares = np.linspace(0, 1, LENGTH_CLASSES + 1)[1:-1]
    edges = np.unique(np.quantile(counts, shares, method="higher"))  # lengths that texts have: no class is empty
    edges = edges[edges > min(counts)]
    if not len(edges):
        raise DataError("length: too many texts have the same number of words, the smallest.")
    bounds = [min(counts), *edges.tolist(), max(counts) + 1]
    names = [f"{low} to {high - 1} words" for low, high in itertools.pairwise(bounds)]
    items = ItemList()
    for (held_out, number, text), count in zip(texts, counts, strict=True):
        items.add(held_out, number, (corpus.add_text(text),), int(np.searchsorted(bounds[1:-1], count, side="right")))
    return items.task("length", "text", "classes", names)


def word_content(texts: Texts, corpus: Corpus, seed: int) -> ProbeTask:
    """Return which of up to `MOST_WORDS` words of middle frequency a text contains: exactly one of them."""
    words = [set(text.lower().translate(STRIPPED).split()) for _, _, text in texts]
    counts = Counter(word for each in words for word in each if word.isalpha() and len(word) > 1)
    rare_enough = [word for word, count in counts.most_common() if LEAST_TEXTS <= count <= len(texts) / 20]
    chosen = set(rare_enough[:MOST_WORDS])
    found = [each & chosen for each in words]
    alone = Counter(next(iter(each)) for each in found if len(each) == 1)
    names = sorted(word for word, count in alone.items() if count >= LEAST_TEXTS)
    if len(names) < 2:
        raise DataError(f"word-content: fewer than two words are in {LEAST_TEXTS} texts each and in few others.")
    items = ItemList()
    for (held_out, number, text), each in zip(texts, found, strict=True):
        if len(each) == 1 and (word := next(iter(each))) in names:
            items.add(held_out, number, (corpus.add_text(text),), names.index(word))
    return items.task("word-content", "text", "classes", names)


def word_order(texts: Texts, corpus: Corpus, seed: int) -> ProbeTask:
    """Return whether two neighbouring words of a text were swapped."""
    items, random = ItemList(), np.random.default_rng(seed)
    for held_out, number, text in texts:
        words = text.split()
        places = [place for place in range(len(words) - 1) if words[place].lower() != words[place + 1].lower()]
        if len(words) < LEAST_SWAPPED or not places:
            continue
        swapped = int(random.integers(2))
        if swapped:
            place = places[random.integers(len(places))]
            words[place : place + 2] = words[place + 1], words[place]
        items.add(held_out, number, (corpus.add_text(" ".join(words)),), swapped)
    _check_count("word-order", items, f"have {LEAST_SWAPPED} words or more")
    return items.task("word-order", "text", "classes", ("in order", "two swapped"))


def punctuation(texts: Texts, corpus: Corpus, seed: int) -> ProbeTask:
    """Return whether the punctuation of a text was removed."""
    items, random = ItemList(), np.random.default_rng(seed)
    for held_out, number, text in texts:
        whole, without = (" ".join(each.split()) for each in (text, text.translate(STRIPPED)))
        if without in ("", whole):
            continue
        removed = int(random.integers(2))
        items.add(held_out, number, (corpus.add_text(without if removed else whole),), removed)
    _check_count("punctuation", items, "have punctuation")
    return items.task("punctuation", "text", "classes", ("with punctuation", "removed"))


def _check_count(name: str, items: ItemList, condition: str) -> None:
    if len(items.items) < LEAST_SELECTED:
        raise DataError(f"{name}: {len(items.items)} texts {condition}; {LEAST_SELECTED} are needed.")


SURFACE_TASKS = {
    "length": length,
    "word-content": word_content,
    "word-order": word_order,
    "punctuation": punctuation,
}
"""By the name that `--task` takes."""
