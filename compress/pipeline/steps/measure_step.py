"""The measuring step: timings at the targets and in the grid, memory, and the machine's limits, in one file.

Everything together is bounded: by the recipe's budget, or else by a default of about a minute and a half.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compress.console import Console, duration
from compress.errors import CompressError
from compress.measure import Job, Latency, time_jobs
from compress.measure.interference.machine_snapshot import MachineSnapshot, snapshot_machine
from compress.measure.resources.serving_memory import ServingMemory, serving_memory
from compress.measure.result_base import ResultModel
from compress.measure.roofline.roofline import MachineLimits, machine_limits
from compress.measure.timing.latency import describe_precision, ratio
from compress.measure.timing.schedule import DEFAULT_BUDGET, DEFAULT_ROUNDS
from compress.measure.timing.timing_inputs import Text
from compress.measure.timing.worker_process import RunningProcesses
from compress.model_info import VariantInfo
from compress.pipeline.step_context import StepContext
from compress.recipe.measure_schema import Grid, Measure, Target
from compress.report.report_schema import GridCell
from compress.runtime.predictor import Placement

if TYPE_CHECKING:
    from compress.pipeline.graph import ModelVariant
    from compress.tasks.base import Row, TaskInput
    from compress.tasks.kind import Kind

LATENCY_FILE = "latency.json"

TIMED_ROWS = 512
"""Rows of test whose texts represent all of them in timing."""

TIMING_SHARE = 0.6
"""Of the recipe's budget, if memory is measured too; the rest is for memory and the machine's limits."""
GRID_SECONDS = 15.0
"""Default budget of each session of the grid; that of the targets' own sessions is `DEFAULT_BUDGET` together."""
MEMORY_SECONDS = 30.0
"""Default budget for memory."""
LIMITS_SECONDS = 15.0
"""Budget left below which the machine's limits are not measured."""

PARALLEL_PROCESSES = 2
"""Processes whose memory is measured at the same time: each counts its own, and nothing is timed."""
SERVED_LENGTH = 128
"""Word pieces of every row while memory is measured; fewer where the task's maximum is less."""


class Measured(ResultModel):
    """The content of latency.json."""

    schema_version: Literal[2] = 2
    latencies: Mapping[str, Latency] = {}
    """By target and row: `cpu student/onnx-int8`."""
    grid: Mapping[str, tuple[GridCell, ...]] = {}
    """By target title."""
    serving: Mapping[str, tuple[ServingMemory, ...]] = {}
    """By device, threads and row: `cpu t1 student/onnx-int8`."""
    limits: tuple[MachineLimits, ...] = ()
    surroundings: MachineSnapshot | None = None


@dataclass(frozen=True)
class TimedModel:
    """One row of the ledger to be measured."""

    key: str
    folder: Path
    variant: VariantInfo | None
    """How a model folder runs; None for an exported folder, which contains it."""
    titles: frozenset[str]
    """The targets it runs at."""


def measure(
    context: StepContext,
    targets: Sequence[Target],
    settings: Measure,
    variants: Sequence[ModelVariant],
    seed: int,
    limits: bool,
) -> float:
    """Time every variant at every target it runs on, and measure more if requested; return the planned seconds."""
    from compress.data.splits.prepare_splits import load_prepared
    from compress.tasks import kind_of

    roles = load_prepared(context.inputs["data"])
    models = [
        TimedModel(
            key=entry.key,
            folder=context.inputs[entry.step],
            variant=None if entry.variant.builder else entry.variant.info,
            titles=frozenset(entry.scores),
        )
        for entry in variants
        if entry.step in context.inputs
    ]
    task = roles.info.task_info
    texts = sample_texts(roles.rows("test"), kind_of(task), TIMED_ROWS)
    measured = measure_all(
        models, targets, texts, settings, longest=task.max_length, seed=seed, limits=limits, console=context.console
    )
    write_measured(context.work, measured)
    return planned_seconds({timed.key: timed.titles for timed in models}, targets, settings)


def measure_all(
    models: Sequence[TimedModel],
    targets: Sequence[Target],
    texts: Sequence[Text],
    settings: Measure,
    *,
    longest: int,
    seed: int = 0,
    limits: bool = True,
    console: Console | None = None,
) -> Measured:
    """Time every row at every target it runs on and in the grid, then measure the machine's limits and memory.

    Args:
        models: the rows.
        targets: those that this machine has.
        texts: rows of the test set.
        settings: what to measure, and for how long.
        longest: the task's maximum length in word pieces.
        seed: chooses which rows meet in a batch and the order of turns.
        limits: measure the machine's own limits too.
        console: shows progress.
    """
    output = console or Console("quiet")
    begin = time.monotonic()
    surroundings = snapshot_machine(device=any(target.device == "cuda" for target in targets))
    timed = _time_all(models, targets, texts, settings, seed, output)
    left = None if settings.budget is None else settings.budget - (time.monotonic() - begin)
    measure_limits = limits and (left is None or left >= LIMITS_SECONDS)
    machine = tuple(_limits(targets, output)) if measure_limits else ()
    end = begin + settings.budget if settings.budget else time.monotonic() + MEMORY_SECONDS
    return Measured(
        latencies={
            f"{target.title} {key}": latency
            for target in targets
            for key, latency in _results_at(models, target, target.batch, target.length, timed).items()
        },
        grid={target.title: _cells(models, target, settings.grid, timed) for target in targets if settings.grid},
        serving=dict(_serving(models, targets, settings, min(SERVED_LENGTH, longest), end, output)),
        limits=machine,
        surroundings=surroundings,
    )


def sample_texts(rows: Sequence[Row], kind: Kind, most: int) -> list[TaskInput]:
    """Return the inputs of up to ``most`` rows at even steps; the same ones every time."""
    step = max(1, len(rows) // most)
    return [kind.to_input(rows[index]) for index in range(0, len(rows), step)][:most]


def write_measured(folder: Path, measured: Measured) -> None:
    """Write latency.json into ``folder``."""
    (folder / LATENCY_FILE).write_text(measured.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_measured(folder: Path) -> Measured:
    """Read latency.json; its first version had the timings alone."""
    content = json.loads((folder / LATENCY_FILE).read_bytes())
    return Measured.model_validate(content if "schema_version" in content else {"latencies": content})


def planned_seconds(titles: Mapping[str, Collection[str]], targets: Sequence[Target], settings: Measure) -> float:
    """Return the time that measuring takes by the settings; ``titles`` are the targets of every row."""
    if settings.budget is not None:
        return settings.budget
    sessions: dict[tuple[object, ...], set[str]] = {}
    for target in targets:
        cells = {(target.batch, target.length)}
        if settings.grid:
            cells |= {(batch, length) for batch in settings.grid.batch for length in settings.grid.length}
        rows = {key for key, at in titles.items() if target.title in at}
        for cell in cells:
            sessions.setdefault((target.device, target.threads, *cell), set()).update(rows)
    if settings.by_rounds:
        turn = (settings.rounds or DEFAULT_ROUNDS) * settings.seconds
        timing = sum(len(rows) for rows in sessions.values()) * turn
    else:
        own = {(target.device, target.threads, target.batch, target.length) for target in targets}
        timing = DEFAULT_BUDGET + GRID_SECONDS * len(sessions.keys() - own)
    return timing + (MEMORY_SECONDS if settings.memory else 0.0)


Length = int | Literal["data"]
JobId = tuple[str, int, int, Length, str]
"""Device, threads, batch, length and row: a timing depends on these and not on the target's name."""


def _jobs(models: Sequence[TimedModel], target: Target, batch: int, length: Length) -> Iterator[tuple[JobId, Job]]:
    """Yield a job for each row; targets with equal settings share it."""
    for model in models:
        if target.title in model.titles:
            yield (
                (target.device, target.threads, batch, length, model.key),
                Job(
                    key=f"{target.device} t{target.threads} b{batch} l{length} {model.key}",
                    folder=model.folder,
                    variant=model.variant,
                    placement=Placement(target.device, target.threads),
                    batch=batch,
                    length=None if length == "data" else length,
                ),
            )


def _time_all(
    models: Sequence[TimedModel],
    targets: Sequence[Target],
    texts: Sequence[Text],
    settings: Measure,
    seed: int,
    console: Console,
) -> dict[JobId, Latency]:
    """Time the targets' own sessions, then the other cells of the grid, without callers."""
    own = {id: job for target in targets for id, job in _jobs(models, target, target.batch, target.length)}
    cells = product(settings.grid.batch, settings.grid.length) if settings.grid else ()
    grid = {
        id: job
        for batch, length in cells
        for target in targets
        for id, job in _jobs(models, target, batch, length)
        if id not in own
    }
    begin, budget = time.monotonic(), None
    if settings.budget is not None:
        budget = settings.budget * (TIMING_SHARE if settings.memory else 1.0)
    share = None if budget is None else budget * len(own) / max(1, len(own) + len(grid))
    timed = time_jobs([*own.values()], texts, settings, seed=seed, console=console, budget=share)
    results = {id: timed[job.key] for id, job in own.items()}
    seconds = time.monotonic() - begin
    for target in targets:
        at_target = _results_at(models, target, target.batch, target.length, results)
        timed_rows = [latency for latency in at_target.values() if latency.model]
        medians = [latency.model.p50 for latency in timed_rows if latency.model]
        ratios = [times for latency in timed_rows[1:] if (times := ratio(timed_rows[0], latency))]
        precision = describe_precision(medians, ratios)
        if precision:
            more = "" if settings.by_rounds else "; a longer measure.budget narrows them"
            console.note(f"{target.title}: {precision} after {duration(seconds)} of timing{more}")
    if grid:
        if budget is not None:
            share = max(0.0, budget - seconds)
        elif not settings.by_rounds:
            share = GRID_SECONDS * len({job.session for job in grid.values()})
        alone = settings.model_copy(update={"callers": ()})
        timed = time_jobs([*grid.values()], texts, alone, seed=seed, console=console, budget=share)
        results |= {id: timed[job.key] for id, job in grid.items()}
    return results


def _cells(
    models: Sequence[TimedModel], target: Target, grid: Grid, timed: Mapping[JobId, Latency]
) -> tuple[GridCell, ...]:
    return tuple(
        GridCell(batch=batch, length=length, latencies=_results_at(models, target, batch, length, timed))
        for length, batch in product(grid.length, grid.batch)
    )


def _results_at(
    models: Sequence[TimedModel], target: Target, batch: int, length: Length, timed: Mapping[JobId, Latency]
) -> dict[str, Latency]:
    """Return the results of this target's rows at a batch and length, by row."""
    return {id[-1]: timed[id] for id, _ in _jobs(models, target, batch, length)}


def _serving(
    models: Sequence[TimedModel],
    targets: Sequence[Target],
    settings: Measure,
    length: int,
    end: float,
    console: Console,
) -> Iterator[tuple[str, tuple[ServingMemory, ...]]]:
    """Measure the memory of every row on every device and number of threads, until ``end`` on the monotonic clock."""
    requests = {
        (target.device, target.threads, model.key): model
        for target in targets
        for model in models
        if target.title in model.titles and settings.memory
    }

    def serve(request: tuple[Literal["cpu", "cuda"], int, str]) -> tuple[ServingMemory, ...]:
        device, threads, _ = request
        model, batches = requests[request], settings.memory
        if time.monotonic() > end:
            reason = "not measured: the time for measuring was used up; a longer measure.budget allows more"
            return tuple(ServingMemory(batch=batch, length=length, reason=reason) for batch in batches)
        return serving_memory(model.folder, model.variant, device, batches, length, threads=threads, running=running)

    running, pool = RunningProcesses(), ThreadPoolExecutor(PARALLEL_PROCESSES)
    try:
        with console.progress(len(requests), "memory", "models") as progress:
            for (device, threads, key), result in zip(requests, pool.map(serve, requests), strict=True):
                yield f"{device} t{threads} {key}", result
                progress.advance(note=key)
    except BaseException:
        running.end()  # the processes ignore Ctrl-C, and the pool waits for them
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _limits(targets: Sequence[Target], console: Console) -> Iterator[MachineLimits]:
    """Yield the limits of every device and number of threads; where they cannot be measured, only warn."""
    for device, threads in dict.fromkeys((target.device, target.threads) for target in targets):
        try:
            yield machine_limits(threads, device, console=console)
        except CompressError as error:
            count = f"{threads} thread{'' if threads == 1 else 's'}"
            console.warn(f"the limits of {device} with {count} were not measured: {error.message}")
