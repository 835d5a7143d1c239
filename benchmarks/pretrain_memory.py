"""`python -m benchmarks.pretrain_memory 10 1000`: memory of a pretraining, and its growth with the size of the corpus.

For each number of megabytes of made-up text a fresh process tokenizes and packs it and trains a tiny BERT for some
updates, and reports its peak memory (VmHWM of Linux), with mapped files and without. The vocabulary is learned from the
first megabyte: what it learns from is limited anyway.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from compress.console import Console
from compress.recipe.pretrain_schema import PretrainRecipe

WORDS, SENTENCES, LENGTH, STEPS = 5_000, 20, 128, 20
MEGABYTE = 10**6


def made_documents(size: int) -> Iterator[list[str]]:
    """Yield documents of random words until they have ``size`` characters."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 9))) for _ in range(WORDS)]
    while size > 0:
        document = [" ".join(draw.choices(words, k=15)) + "." for _ in range(SENTENCES)]
        size -= sum(map(len, document))
        yield document


def status(name: str) -> float:
    """Return a line of /proc/self/status in megabytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(f"{name}:"))


def train(size: int, folder: Path) -> None:
    """Pretrain on so many characters, all in this process."""
    from compress.data.tokenizer import read_tokenizer
    from compress.pretrain.method import PretrainData, Setting
    from compress.pretrain.pretrain import pretrain
    from compress.pretrain.text.corpus import PARTS, Corpus, write_corpus
    from compress.pretrain.text.packing import pack
    from compress.pretrain.vocabulary.train_vocabulary import train_vocabulary

    recipe = PretrainRecipe.model_validate(
        {
            "text": "made.txt",
            "shape": {"layers": 2, "hidden": 64},
            "vocabulary": {"size": 2_000},
            "next_sentence": True,
            "train": {"length": LENGTH, "steps": STEPS, "batch_size": 32, "evaluations": 1},
        }
    )
    assert recipe.vocabulary is not None
    train_vocabulary(made_documents(MEGABYTE), recipe.vocabulary, folder / "vocabulary")
    tokenizer = read_tokenizer(folder / "vocabulary")
    write_corpus(made_documents(size), tokenizer, 3, recipe.text.held_out, 0, folder / "corpus")
    for part in PARTS:
        pack(Corpus(folder / "corpus", part), part, LENGTH, pairs=True, seed=0, folder=folder / "packing")
    data = PretrainData.load(folder / "corpus", folder / "packing", folder / "vocabulary")
    pretrain(Setting(recipe, data, None, Console("quiet")), folder / "model")


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
            train(megabytes * MEGABYTE, Path(folder))
    finally:
        ended.set()
        thread.join()
    seconds = time.monotonic() - began
    sys.stdout.write(f"{megabytes:,} MB: {status('VmHWM'):.0f} MB, {anonymous[0]:.0f} without files, {seconds:.0f} s\n")


if __name__ == "__main__":
    sizes = [int(size) for size in sys.argv[1:]]
    if len(sizes) == 1:
        measure(sizes[0])
    else:
        for each in sizes:
            subprocess.run([sys.executable, "-m", "benchmarks.pretrain_memory", str(each)], check=True)
