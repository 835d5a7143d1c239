"""How much memory serving takes: a fresh process that loads one model and runs it a few times at each batch size."""

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from compress.errors import OutOfMemory
from compress.measure.result_base import ResultModel
from compress.measure.timing.process_limits import device_memory, peak_memory, resident_memory
from compress.measure.timing.schedule import fixed_arrays
from compress.measure.timing.worker_process import RunningProcesses, WorkerLost, WorkerProcess
from compress.measure.timing.worker_protocol import Task, serve_task
from compress.model_folder.model_info import VariantInfo
from compress.runtime import open_predictor
from compress.runtime.predictor import Placement

TIMEOUT = 300.0
"""Seconds for loading a model and running it a few times."""
CALLS = 5
"""Runtimes keep the buffers of the first calls; after so many nothing more is added."""


class ServingMemory(ResultModel):
    """Memory of a process that serves batches of one size, everything in it included."""

    batch: int
    """1: one by one."""
    length: int = 128
    """Word pieces of every row."""
    resident: int | None = None
    """Bytes that remain in memory after a few calls."""
    peak: int | None = None
    """Most bytes at any time, loading included."""
    device: int | None = None
    """Bytes on the accelerator; None where none was used, or it is not known."""
    device_source: str | None = None
    """How they were read."""
    reason: str | None = None
    """Why there is no figure, or none of the accelerator."""


class ServingTask(Task):
    """The model to serve, and the batch sizes in increasing order."""

    folder: Path
    variant: VariantInfo | None
    batches: tuple[int, ...]
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
    """Return the memory of serving one by one (a batch of 1) and in batches; where there is no figure, the reason.

    One process serves all batch sizes, the smallest first, so that each peak is that of its own size. Where one ends
    the process, all larger ones have the same reason.

    Args:
        folder: of the model or variant, or a bare file.
        variant: how it runs; None for an exported folder, which contains it.
        device: where it runs.
        batches: batch sizes.
        length: word pieces of every row.
        threads: of the runtime; each takes some memory of its own.
        running: where the processes are added, so that another thread can end them.
    """
    sizes = tuple(sorted(batches))
    task = ServingTask(folder=folder, variant=variant, device=device, threads=threads, batches=sizes, length=length)
    results: dict[int, ServingMemory] = {}
    reason = None
    try:
        with WorkerProcess("compress.measure.resources.serving_memory", ServingMemory, threads) as process:
            if running is not None:
                running.add(process)
            process.send(task)
            for batch in sizes:
                results[batch] = process.receive(TIMEOUT)
    except WorkerLost as failure:
        reason = str(failure).removesuffix(".")
    return tuple(results.get(batch) or ServingMemory(batch=batch, length=length, reason=reason) for batch in batches)


def serve_batches(task: ServingTask) -> Iterator[ServingMemory]:
    """Load the model, run it a few times at each batch size, and read this process's memory after each."""
    predictor = open_predictor(task.folder, Placement(task.device, task.threads), task.variant)
    for batch in task.batches:
        try:
            arrays = fixed_arrays(task.folder, batch, task.length, seed=0)
            for _ in range(CALLS):
                predictor.predict(arrays)
        except MemoryError as error:
            raise OutOfMemory(f"a batch of {batch} rows of {task.length} pieces does not fit in memory.") from error
        gc.collect()
        held, source = device_memory(task.device)
        yield ServingMemory(
            batch=batch,
            length=task.length,
            resident=resident_memory(),
            peak=peak_memory(),
            device=held,
            device_source=None if held is None else source,
            reason=source if held is None else None,
        )


if __name__ == "__main__":
    serve_task(ServingTask, serve_batches)
