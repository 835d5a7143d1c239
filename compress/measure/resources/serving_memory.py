"""How much memory serving takes: a fresh process for every batch, which loads one model and answers a few times."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from compress.measure.result_base import ResultModel
from compress.measure.timing.process_limits import device_memory, peak_memory, resident_memory
from compress.measure.timing.subprocess_task import (
    OUT_OF_MEMORY,
    RunningProcesses,
    SubprocessFailed,
    Task,
    run_in_subprocess,
    serve_subprocess,
)
from compress.model_info import VariantInfo

PATIENCE = 300.0
"""Seconds for loading a model and answering a few times."""
ANSWERS = 5
"""Runtimes keep what the first answers needed; after so many nothing more is added."""


class ServingMemory(ResultModel):
    """Memory of a process that serves batches of one size, everything in it included."""

    batch: int
    """1: one by one."""
    length: int = 128
    """Word pieces of every row."""
    resident: int | None = None
    """Bytes that stay in memory once it has answered a few times."""
    peak: int | None = None
    """Bytes at the worst moment, loading included."""
    device: int | None = None
    """Bytes on the accelerator; None where none was used, or nothing tells."""
    device_source: str | None = None
    """What tells them."""
    reason: str | None = None
    """Why there is no figure, or none of the accelerator."""


class Question(Task):
    """Which model to serve, and what."""

    folder: str
    variant: VariantInfo | None
    batch: int
    length: int


def serving_memory(
    folder: Path,
    variant: VariantInfo | None,
    device: Literal["cpu", "cuda"] = "cpu",
    batches: Sequence[int] = (1, 32),
    length: int = 128,
    *,
    threads: int = 1,
    running: RunningProcesses | None = None,
) -> tuple[ServingMemory, ...]:
    """Memory of serving one by one (a batch of 1) and in batches; where there is no figure, the reason.

    Args:
        folder: of the model or variant, or a bare file.
        variant: as which it runs; None where the folder knows.
        device: where it runs.
        batches: each gets a process of its own.
        length: word pieces of every row.
        threads: of the runtime; each brings some memory of its own.
        running: is told of the processes, so that they can be ended from another thread.
    """
    path = os.fspath(folder.absolute())
    asked = (
        Question(folder=path, variant=variant, device=device, threads=threads, batch=batch, length=length)
        for batch in batches
    )
    return tuple(_serve_apart(each, running) for each in asked)


def _serve_apart(asked: Question, running: RunningProcesses | None) -> ServingMemory:
    try:
        return run_in_subprocess("compress.measure.resources.serving_memory", asked, ServingMemory, PATIENCE, running)
    except SubprocessFailed as failure:
        full = str(failure) == OUT_OF_MEMORY
        tight = f"a batch of {asked.batch} rows of {asked.length} pieces does not fit in memory"
        return ServingMemory(batch=asked.batch, length=asked.length, reason=tight if full else str(failure))


def serve(asked: Question) -> ServingMemory:
    """Load the model, answer a few times, and look at this process."""
    from compress.measure.timing.timing_inputs import fixed_arrays
    from compress.runtime import open_predictor
    from compress.runtime.predictor import Placement

    model = Path(asked.folder)
    predictor = open_predictor(model, Placement(asked.device, asked.threads), asked.variant)
    arrays = fixed_arrays(model, asked.batch, asked.length, seed=0)
    for _ in range(ANSWERS):
        predictor.predict(arrays)
    gc.collect()
    held = device_memory(asked.device)
    return ServingMemory(
        batch=asked.batch,
        length=asked.length,
        resident=resident_memory(),
        peak=peak_memory(),
        device=held.bytes,
        device_source=held.source if held.bytes is not None else None,
        reason=held.source if held.bytes is None else None,
    )


if __name__ == "__main__":
    serve_subprocess(Question, serve)
