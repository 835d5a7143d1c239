"""What the measuring step looks at and what it leaves: timings, a grid, memory and the machine, in one file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compress.console import Console
from compress.errors import CompressError
from compress.measure import Job, Latency, time_jobs
from compress.measure.interference.machine_snapshot import MachineSnapshot, snapshot_machine
from compress.measure.resources.serving_memory import ServingMemory, serving_memory
from compress.measure.result_base import ResultModel
from compress.measure.roofline.roofline import MachineLimits, machine_limits
from compress.measure.timing.subprocess_task import RunningProcesses
from compress.measure.timing.timing_inputs import Text
from compress.model_info import VariantInfo
from compress.pipeline.step_context import StepContext
from compress.recipe.measure_schema import Grid, Measure, Target
from compress.report.report_schema import GridCell
from compress.runtime import predictor

if TYPE_CHECKING:
    from compress.pipeline.graph import ModelVariant
    from compress.tasks.base import Kind, Row, TaskInput

LATENCY_FILE = "latency.json"

TIMED_ROWS = 512
"""Rows of test whose texts represent all of them in timing."""

SERVED_TOGETHER = 2
"""Processes whose memory is looked at at once: each is counted alone, and nothing here is timed."""

SERVED_LENGTH = 128
"""Word pieces of every row while memory is looked at; fewer where the task keeps fewer."""


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
    """One row of the ledger, as measuring sees it."""

    key: str
    folder: Path
    variant: VariantInfo | None
    """How a model folder runs; None where the folder says it itself."""
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
    """Time every variant at every target it runs on, and what else the recipe asks about speed and memory."""
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
    return turn_seconds({timed.key: timed.titles for timed in models}, targets, settings)


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
    """Time every row at every target it runs on and in the grid, then look at memory and at the machine's limits.

    Args:
        models: the rows.
        targets: those that are on this machine.
        texts: rows of the test set.
        settings: how long, and at what.
        longest: word pieces that the task keeps of a text.
        seed: chooses which rows meet in a batch and the order of turns.
        limits: measure the machine's own limits too.
        console: is told of progress.
    """
    speaker = console or Console("quiet")
    surroundings = snapshot_machine(device=any(target.device == "cuda" for target in targets))
    own = {place: job for target in targets for place, job in _jobs(models, target, target.batch, target.length)}
    timed = time_jobs([*own.values()], texts, settings, seed=seed, console=speaker)
    found = {place: timed[job.key] for place, job in own.items()}
    found |= _time_grid(models, targets, texts, settings, found, seed, speaker)
    return Measured(
        latencies={
            f"{target.title} {key}": latency
            for target in targets
            for key, latency in _at(models, target, target.batch, target.length, found).items()
        },
        grid={target.title: _cells(models, target, settings.grid, found) for target in targets if settings.grid},
        serving=dict(_serving(models, targets, settings, min(SERVED_LENGTH, longest), speaker)),
        limits=tuple(_limits(targets, speaker)) if limits else (),
        surroundings=surroundings,
    )


def sample_texts(rows: Sequence[Row], kind: Kind, most: int) -> list[TaskInput]:
    """What would be handed over of rows at even steps through all: the same ones every time."""
    step = max(1, len(rows) // most)
    return [kind.to_input(rows[index]) for index in range(0, len(rows), step)][:most]


def write_measured(folder: Path, measured: Measured) -> None:
    """Write latency.json into ``folder``."""
    (folder / LATENCY_FILE).write_text(measured.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_measured(folder: Path) -> Measured:
    """Read latency.json; its first version held the timings alone."""
    content = json.loads((folder / LATENCY_FILE).read_bytes())
    return Measured.model_validate(content if "schema_version" in content else {"latencies": content})


def turn_seconds(titles: Mapping[str, Collection[str]], targets: Sequence[Target], settings: Measure) -> float:
    """The time that turns take by the settings, without loading; ``titles`` are the targets of every row."""
    sessions: dict[tuple[object, ...], set[str]] = {}
    for target in targets:
        cells = {(target.batch, target.length)}
        if settings.grid:
            cells |= {(batch, length) for batch in settings.grid.batch for length in settings.grid.length}
        rows = {key for key, at in titles.items() if target.title in at}
        for cell in cells:
            sessions.setdefault((target.device, target.threads, *cell), set()).update(rows)
    return sum(settings.budget or len(rows) * settings.rounds * settings.seconds for rows in sessions.values())


Length = int | Literal["data"]
Place = tuple[str, int, int, Length, str]
"""Device, threads, batch, length and row: what a timing depends on, whichever target asks for it."""


def _jobs(models: Sequence[TimedModel], target: Target, batch: int, length: Length) -> Iterator[tuple[Place, Job]]:
    """A job a row; targets that ask the same of a row share it."""
    for model in models:
        if target.title in model.titles:
            yield (
                (target.device, target.threads, batch, length, model.key),
                Job(
                    key=f"{target.device} t{target.threads} b{batch} l{length} {model.key}",
                    folder=model.folder,
                    variant=model.variant,
                    place=predictor.Placement(target.device, target.threads),
                    batch=batch,
                    length=None if length == "data" else length,
                ),
            )


def _time_grid(
    models: Sequence[TimedModel],
    targets: Sequence[Target],
    texts: Sequence[Text],
    settings: Measure,
    found: Mapping[Place, Latency],
    seed: int,
    console: Console,
) -> dict[Place, Latency]:
    """Every cell that is no target's own place, timed without a load of callers."""
    if settings.grid is None:
        return {}
    jobs = {
        place: job
        for target in targets
        for batch, length in product(settings.grid.batch, settings.grid.length)
        for place, job in _jobs(models, target, batch, length)
        if place not in found
    }
    alone = settings.model_copy(update={"callers": ()})
    timed = time_jobs([*jobs.values()], texts, alone, seed=seed, console=console)
    return {place: timed[job.key] for place, job in jobs.items()}


def _cells(
    models: Sequence[TimedModel], target: Target, grid: Grid, found: Mapping[Place, Latency]
) -> tuple[GridCell, ...]:
    return tuple(
        GridCell(batch=batch, length=length, latencies=_at(models, target, batch, length, found))
        for length, batch in product(grid.length, grid.batch)
    )


def _at(
    models: Sequence[TimedModel], target: Target, batch: int, length: Length, found: Mapping[Place, Latency]
) -> dict[str, Latency]:
    """By row, what was found for this target's rows at a batch and length."""
    return {place[-1]: found[place] for place, _ in _jobs(models, target, batch, length)}


def _serving(
    models: Sequence[TimedModel], targets: Sequence[Target], settings: Measure, length: int, console: Console
) -> Iterator[tuple[str, tuple[ServingMemory, ...]]]:
    wanted = {
        (target.device, target.threads, model.key): model
        for target in targets
        for model in models
        if target.title in model.titles and settings.memory
    }

    def serve(place: tuple[Literal["cpu", "cuda"], int, str]) -> tuple[ServingMemory, ...]:
        device, threads, _ = place
        model = wanted[place]
        folder, variant, batches = model.folder, model.variant, settings.memory
        return serving_memory(folder, variant, device, batches, length, threads=threads, running=running)

    running, pool = RunningProcesses(), ThreadPoolExecutor(SERVED_TOGETHER)
    try:
        with console.progress(len(wanted), "memory", "models") as progress:
            for (device, threads, key), found in zip(wanted, pool.map(serve, wanted), strict=True):
                yield f"{device} t{threads} {key}", found
                progress.advance(note=key)
    except BaseException:
        running.end()  # their processes take no notice of Ctrl-C, and the pool waits for them
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _limits(targets: Sequence[Target], console: Console) -> Iterator[MachineLimits]:
    """The limits of every device and number of threads; a machine that cannot be probed is told of, no more."""
    for device, threads in dict.fromkeys((target.device, target.threads) for target in targets):
        try:
            yield machine_limits(threads, device, console=console)
        except CompressError as error:
            count = f"{threads} thread{'' if threads == 1 else 's'}"
            console.warn(f"the limits of {device} with {count} were not measured: {error.message}")
