"""`python -m benchmarks.pretrain_memory 10 100`: memory of a pretraining, and its growth with the size of the corpus.

For each number of millions of characters a fresh process reads a text file (the articles of wiki_en in COMPRESS_DATA,
again and again), tokenizes and packs it and trains a tiny BERT for some updates, and reports its peak memory (VmHWM of
Linux), with mapped files and without. The vocabulary is learned from the first articles: what it learns from is
limited anyway.

Memory grows with the number of shapes of batches, too: each has kernels of its own, and freed blocks are kept. So that
the growth with the corpus can be seen alone, `--copies 1 100` trains on so many copies of the packed sequences of the
first size, and on one and the same batch in every update.
"""

import argparse
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

import numpy as np

from compress.console import Console
from compress.pretrain.pretrain_schema import PretrainRecipe
from compress.pretrain.text.sentence_packing import COLUMNS, DTYPE

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


def append_copies(files: list[Path], copies: int, pieces: int) -> None:
    """Append copies of a packed part to its files: pieces, starts of words, and the places of pairs, which move on."""
    *fields, records = files
    for path in fields:
        content = path.read_bytes()
        with path.open("ab") as file:
            for _ in range(copies - 1):
                file.write(content)
    places, step = np.fromfile(records, DTYPE).reshape(-1, COLUMNS), np.array([pieces] * 4 + [0])
    with records.open("ab") as file:
        for copy in range(1, copies):
            (places + copy * step).astype(DTYPE).tofile(file)


def train(size: int, copies: int | None, folder: Path) -> float:
    """Pretrain on so many characters, all in this process; returns its peak memory until the training begins."""
    from compress.data.tokenizer import read_tokenizer
    from compress.pretrain.encoders import PretrainData, Setting
    from compress.pretrain.pretrain import pretrain
    from compress.pretrain.text.corpus_pieces import PARTS, PIECES, WORD_STARTS, Corpus, documents, write_corpus
    from compress.pretrain.text.sentence_packing import pack, records_file
    from compress.pretrain.vocabulary.train_vocabulary import train_vocabulary
    from compress.train.core.update_schedule import UpdateSchedule

    recipe = PretrainRecipe.model_validate(
        {
            "text": {"files": str(write_text(size, folder / "articles.txt")), "held_out": 0.05},
            "shape": {"layers": 2, "hidden": 64},
            "vocabulary": {"size": 2_000},
            "next_sentence": True,
            "masked_lm": {"masks": "dynamic" if copies is None else "static"},
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
    if copies is not None:
        fields = [folder / "corpus" / f"train-{name}.bin" for name in (PIECES, WORD_STARTS)]
        pieces = int(Corpus(folder / "corpus", "train").info["train"]["pieces"])
        append_copies([*fields, records_file(folder / "packing", "train", LENGTH)], copies, pieces)
        batches = UpdateSchedule.batches
        UpdateSchedule.batches = lambda self, update: batches(self, 0)  # type: ignore[method-assign]
    data = PretrainData.load(folder / "corpus", folder / "packing", folder / "vocabulary")
    packed = status("VmHWM")
    pretrain(Setting(recipe, data, None, Console("quiet")), folder / "model")
    return packed


def measure(megabytes: int, copies: int | None) -> None:
    """Train in this process, and print its peaks and the time."""
    anonymous, ended, began = [0.0], threading.Event(), time.monotonic()

    def watch() -> None:
        while not ended.wait(0.05):
            anonymous[0] = max(anonymous[0], status("RssAnon"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            packed = train(megabytes * MEGABYTE, copies, Path(folder))
    finally:
        ended.set()
        thread.join()
    seconds = time.monotonic() - began
    peak = f"{packed:.0f} MB until packed, {status('VmHWM'):.0f} MB in all, {anonymous[0]:.0f} MB without files"
    size = f"{megabytes:,} MB" if copies is None else f"{copies:,} x {megabytes:,} MB"
    sys.stdout.write(f"{size}: {peak}, {seconds:.0f} s\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", type=int, nargs="+")
    parser.add_argument("--copies", type=int, nargs="+", default=[None])
    chosen = parser.parse_args()
    if len(chosen.megabytes) == len(chosen.copies) == 1:
        measure(chosen.megabytes[0], chosen.copies[0])
    else:
        for each in chosen.megabytes:
            for number in chosen.copies:
                repeated = [] if number is None else ["--copies", str(number)]
                command = [sys.executable, "-m", "benchmarks.pretrain_memory", str(each), *repeated]
                subprocess.run(command, check=True)
