"""A set of many classes: single sentences of long encyclopedia articles, whose title is the class."""

import gzip
import json
import random
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

ARTICLES, TRAIN, TEST = 77, 85, 15
"""Classes, and sentences of each."""
WORDS = range(5, 26)
"""Of a sentence."""


def write_wiki_articles(
    source: Path, folder: Path, articles: int = ARTICLES, train: int = TRAIN, test: int = TEST
) -> None:
    """Write `train.jsonl` and `test.jsonl` from the first long articles of ``source``, the same each time."""
    draw, rows = random.Random(0), {"train": list[tuple[str, str]](), "test": list[tuple[str, str]]()}
    for title, sentences in islice(_long_articles(source, train + test), articles):
        drawn = [(sentence, title) for sentence in draw.sample(sentences, train + test)]
        rows["train"] += drawn[:train]
        rows["test"] += drawn[train:]
    draw.shuffle(rows["train"])
    for role, pairs in rows.items():
        lines = (json.dumps({"text": text, "label": title}) + "\n" for text, title in pairs)
        (folder / f"{role}.jsonl").write_text("".join(lines), encoding="utf-8")


def _long_articles(source: Path, enough: int) -> Iterator[tuple[str, list[str]]]:
    """Yield title and different sentences of each article that has enough of them."""
    with gzip.open(source, "rt", encoding="utf-8") as file:
        for article in map(json.loads, file):
            parts = re.split(r"\n|(?<=[.!?])\s+", article["text"])
            sentences = list(dict.fromkeys(part.strip() for part in parts if len(part.split()) in WORDS))
            if len(sentences) >= enough:
                yield article["title"], sentences
