"""`python -m benchmarks.pretrain_memory 10 1000`: memory of a pretraining, and its growth with the size of the corpus.

For each number of millions of characters a fresh process reads a text file (the articles of wiki_en in COMPRESS_DATA,
again and again), tokenizes and packs it and trains a tiny BERT for some updates, and reports its peak memory (VmHWM of
Linux), with mapped files and without. The vocabulary is learned from the first articles: what it learns from is
limited anyway.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from compress.console import Console
from compress.recipe.pretrain_schema import PretrainRecipe

LENGTH, STEPS = 128, 20
VOCABULARY_FROM = 100
"""Articles."""
MEGABYTE = 10**6


def articles() -> Iterator[str]:
    """Yield the texts of wiki_en without end."""
    path = Path(os.environ["COMPRESS_DATA"]) / "wiki_en" / "AA.jsonl.gz"
    while True:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"]


def write_text(size: int, path: Path) -> Path:
    """Write articles of about ``size`` characters, with an empty line after each."""
    with path.open("w", encoding="utf-8") as file:
        for article in articles():
            file.write("\n".join(filter(None, map(str.strip, article.splitlines()))) + "\n\n")
            size -= len(article)
            if size <= 0:
                return path
    raise AssertionError("articles have an end")


def status(name: str) -> float:
    """Return a line of /proc/self/status in megabytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(f"{name}:"))


def train(size: int, folder: Path) -> float:
    """Pretrain on so many characters, all in this process; returns its peak memory until the training begins."""
    from compress.data.tokenizer import read_tokenizer
    from compress.pretrain.method import PretrainData, Setting
    from compress.pretrain.pretrain import pretrain
    from compress.pretrain.text.corpus import PARTS, Corpus, write_corpus
    from compress.pretrain.text.documents import documents
    from compress.pretrain.text.packing import pack
    from compress.pretrain.vocabulary.train_vocabulary import train_vocabulary

    recipe = PretrainRecipe.model_validate(
        {
            "text": {"files": str(write_text(size, folder / "articles.txt")), "held_out": 0.05},
            "shape": {"layers": 2, "hidden": 64},
            "vocabulary": {"size": 2_000},
            "next_sentence": True,
            "train": {"length": LENGTH, "steps": STEPS, "batch_size": 32, "evaluations": 1},
        }
    )
    assert recipe.vocabulary is not None
    few = recipe.text.model_copy(update={"limit": VOCABULARY_FROM})
    train_vocabulary(documents(few), recipe.vocabulary, folder / "vocabulary")
    tokenizer = read_tokenizer(folder / "vocabulary")
    write_corpus(documents(recipe.text), tokenizer, 3, recipe.text.held_out, 0, folder / "corpus")
    for part in PARTS:
        pack(Corpus(folder / "corpus", part), part, LENGTH, pairs=True, seed=0, folder=folder / "packing")
    data = PretrainData.load(folder / "corpus", folder / "packing", folder / "vocabulary")
    packed = status("VmHWM")
    pretrain(Setting(recipe, data, None, Console("quiet")), folder / "model")
    return packed


def measure(megabytes: int) -> None:
    """Train in this process, and print its peaks and the time."""
    anonymous, ended, began = [0.0], threading.Event(), time.monotonic()

    def watch() -> None:
        while not ended.wait(0.05):
            anonymous[0] = max(anonymous[0], status("RssAnon"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            packed = train(megabytes * MEGABYTE, Path(folder))
    finally:
        ended.set()
        thread.join()
    seconds = time.monotonic() - began
    peak = f"{packed:.0f} MB until packed, {status('VmHWM'):.0f} MB in all, {anonymous[0]:.0f} MB without files"
    sys.stdout.write(f"{megabytes:,} MB: {peak}, {seconds:.0f} s\n")


if __name__ == "__main__":
    sizes = [int(size) for size in sys.argv[1:]]
    if len(sizes) == 1:
        measure(sizes[0])
    else:
        for each in sizes:
            subprocess.run([sys.executable, "-m", "benchmarks.pretrain_memory", str(each)], check=True)
