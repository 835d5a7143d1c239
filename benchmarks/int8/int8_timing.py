"""Scores and times every file of a model, interleaved in one session for each number of threads, batch and length."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.int8.int8_results import TORCH, Entry
from compress.data.encode import encode_rows
from compress.data.splits.prepare_splits import PreparedData
from compress.data.tokenizer import TextTokenizer
from compress.measure.bench import bench
from compress.measure.resources.footprint import footprint
from compress.recipe.measure_schema import Measure, Target
from compress.runtime import open_predictor

THREADS, BATCHES, LENGTHS = (1, 2), (1, 8), ("data", 128)


def score(file: Path, data: PreparedData, tokenizer: Path) -> tuple[float, NDArray[np.int64]]:
    """Return the accuracy on test, rows one by one as at batch 1, and the class of each row."""
    rows, predictor = data.rows("test"), open_predictor(file)
    encoded = encode_rows(rows, data.info.task_info, TextTokenizer.load(tokenizer))
    classes = [int(predictor.predict(encoded.batch(np.array([row])))["logits"].argmax()) for row in range(len(rows))]
    labels = np.array([row["label"] for row in rows])
    return float((np.array(classes) == labels).mean()), np.array(classes)


def sessions(threads: tuple[int, ...] = THREADS) -> Iterator[tuple[str, Target]]:
    """Yield the title and the target of each session."""
    for count in threads:
        for batch in BATCHES:
            for length in LENGTHS:
                pieces = "own lengths" if length == "data" else f"{length} pieces"
                title = f"{count} thread{'s' if count > 1 else ''}, batch {batch}, {pieces}"
                yield title, Target(device="cpu", threads=count, batch=batch, length=length)


def time_files(
    files: Mapping[str, Path], target: Target, texts: Path, budget: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Return each file's median milliseconds, and its share of the matrix rate in its precision where that is known."""
    names = {str(path) if name != TORCH else f"{path}:torch-fp32": name for name, path in files.items()}
    done = bench(
        list(names),
        target,
        texts=texts if target.length == "data" else None,
        settings=Measure(budget=budget),
        limits=True,
    )
    times, shares = {}, {}
    for argument, timed in done.targets[0].models.items():
        if timed.latency.model:
            times[names[argument]] = timed.latency.model.p50.value
        if timed.shares and timed.shares.compute:
            shares[names[argument]] = timed.shares.compute
    return times, shares


def with_quality(entry: Entry, file: Path, data: PreparedData, tokenizer: Path, expected: NDArray[np.int64]) -> Entry:
    """Return the entry with its size, score and agreement with the ``expected`` classes."""
    accuracy, classes = score(file, data, tokenizer)
    agreement = float((classes == expected).mean()) if len(expected) else 1.0
    return entry.model_copy(
        update={"megabytes": footprint(file).bytes_weights / 1e6, "score": accuracy, "agreement": agreement}
    )
