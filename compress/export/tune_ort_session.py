"""Chooses ONNX Runtime session options by timing them, because the fastest ones depend on processor and graph.

Short timings of a few calls in turn are enough to choose between files and options, not to report a latency.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnxruntime as ort

from compress.environment import describe_cpu
from compress.export.comparison.golden_inputs import golden_batches
from compress.model_folder.model_info import read_info
from compress.runtime import SESSION_FILE, TunedSession, open_predictor
from compress.runtime.onnx_runtime import existing_onnx, make_session
from compress.runtime.predictor import Placement
from compress.storage.atomic_write import write_model
from compress.tasks.base import Arrays

CANDIDATES: tuple[Mapping[str, Any], ...] = ({}, {"disabled_optimizers": ["SkipLayerNormFusion"]})
"""The default comes first. ONNX Runtime fuses residual additions into SkipLayerNormalization by default, which on some
processors is slower than the two operators it replaces (10 to 30 % of a small encoder)."""

WORTH = 0.98
"""Other options than the default must take less than this share of its time."""


def tune_session(folder: Path, work: Path, batches: Sequence[Arrays] = (), *, threads: int = 1) -> TunedSession:
    """Write ``work``/session.json: the fastest of `CANDIDATES` for one row of the median length on this processor.

    Args:
        folder: an exported or quantized ONNX folder.
        work: an existing folder that receives session.json; ``folder`` itself to keep it with the model.
        batches: encoded rows, of which the one of median length is timed; golden sentences where none are given.
        threads: CPU threads.
    """
    info, model = read_info(folder), existing_onnx(folder)
    fixed = info.variant.session if info.variant else {}
    placement = Placement("cpu", threads)
    row = median_row(batches or golden_batches(folder, info.task)["sentences"][1])

    def open_with(options: Mapping[str, Any]) -> Callable[[], object]:
        session = make_session(model, placement, {**fixed, **options})
        return partial(session.run, None, {given.name: row[given.name] for given in session.get_inputs()})

    options, medians = fastest_options(open_with)
    cpu = describe_cpu()
    tuned = TunedSession(
        processor=cpu.model,
        instructions=cpu.instructions,
        runtime="onnxruntime",
        version=ort.__version__,
        options=options,
        milliseconds=tuple(round(1e3 * median, 4) for median in medians),
        threads=threads,
    )
    write_model(work / SESSION_FILE, tuned)
    return tuned


def fastest_options(
    open_with: Callable[[Mapping[str, Any]], Callable[[], object]],
) -> tuple[Mapping[str, Any], list[float]]:
    """Return the fastest of `CANDIDATES`, and the median seconds of a call with each.

    ``open_with``: returns the call of a session with these options.
    """
    medians = median_times([open_with(options) for options in CANDIDATES])
    return CANDIDATES[fastest(medians)], medians


def fastest(seconds: Sequence[float]) -> int:
    """Return the index of the least time, or 0 where it gains too little over the default."""
    best = min(range(len(seconds)), key=lambda index: seconds[index])
    return best if seconds[best] < WORTH * seconds[0] else 0


ROUNDS = 50
SECONDS = 3.0
"""Calls are timed for `ROUNDS` rounds, or as many as fit into `SECONDS` (three at least)."""


def time_folders(folders: Sequence[Path], row: Arrays, threads: int) -> list[float]:
    """Return the median seconds that each exported folder takes for ``row`` on the CPU; they take turns."""
    opened = [open_predictor(folder, Placement("cpu", threads)) for folder in folders]
    return median_times([partial(predictor.predict, row) for predictor in opened])


def median_times(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median seconds of each call; they take turns after a first call of each."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    start = time.perf_counter()
    while len(times[0]) < 3 or (len(times[0]) < ROUNDS and time.perf_counter() - start < SECONDS):
        for call, taken in zip(calls, times, strict=True):
            begin = time.perf_counter()
            call()
            taken.append(time.perf_counter() - begin)
    return [statistics.median(taken) for taken in times]


def median_row(batches: Sequence[Arrays]) -> Arrays:
    """Return the row of median length, without padding."""
    rows = [(int(mask.sum()), batch, index) for batch in batches for index, mask in enumerate(batch["attention_mask"])]
    length, batch, index = sorted(rows, key=lambda row: row[0])[len(rows) // 2]
    return {name: array[index : index + 1, :length].copy() for name, array in batch.items() if array.ndim == 2}
