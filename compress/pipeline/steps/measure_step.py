"""The measuring step: timings at the targets and in the grid, memory, and the machine's limits, in one ledger.

Everything together is bounded: by the recipe's budget, or else by a default of about a minute and a half.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compress.console import Console, duration
from compress.data.splits.prepare_splits import load_prepared
from compress.errors import CompressError, StepIncomplete, pluralize
from compress.measure import Job, Latency, time_jobs
from compress.measure.machine_snapshot import snapshot_machine
from compress.measure.resources.footprint import footprint
from compress.measure.resources.serving_memory import ServingMemory, serving_memory
from compress.measure.roofline.roofline import LimitShares, MachineLimits, find_limits, machine_limits, shares_of_limits
from compress.measure.timing.latency import describe_precision, ratio
from compress.measure.timing.worker_process import RunningProcesses
from compress.model_folder.model_info import VariantInfo, find_info
from compress.pipeline.step_context import StepContext
from compress.pipeline.strip_paths import strip_paths_deep
from compress.recipe.measure_schema import Measure, Target, TimingGrid
from compress.runtime.predictor import Placement
from compress.select.ledger import LEDGER_FILE, GridCell, Ledger, TargetResult, read_ledger, write_ledger
from compress.tasks import kind_of
from compress.tasks.base import Row, TaskInput, evenly_spaced

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan
    from compress.tasks.kind import Kind

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


@dataclass(frozen=True)
class TimedModel:
    """One row of the ledger to be measured."""

    key: str
    folder: Path
    variant: VariantInfo | None
    """How a model folder runs; None for an exported folder, which contains it."""
    titles: frozenset[str]
    """The targets it runs at."""
    precision: str = "fp32"
    """Of its layers: the machine's limit that it is compared with."""


def measure(context: StepContext, plan: Plan, limits: bool) -> None:
    """Time every variant at every target it runs on, and measure more if requested."""
    models = [
        TimedModel(
            key=entry.key,
            folder=context.inputs[entry.step],
            variant=None if entry.variant.builder else entry.variant.info,
            titles=frozenset(entry.scores),
            precision=entry.variant.precision,
        )
        for entry in plan.variants
        if entry.step in context.inputs
    ]
    roles, recipe = load_prepared(context.inputs["data"]), plan.recipe
    task = roles.info.task_info
    texts = sample_texts(roles.rows("test"), kind_of(task))
    everything = plan.present_targets, texts, recipe.measure, task.max_length, recipe.seed, limits, context.console
    measured = Measurement(models, *everything).run()
    ledger = Ledger.model_validate(strip_paths_deep(measured.model_dump(exclude_unset=True)))
    before = _died(read_ledger(context.work)) if (context.work / LEDGER_FILE).is_file() else {}
    write_ledger(context.work, ledger)  # reports show it as it is
    _check_processes(ledger, before, next((model.key for model in models), ""))


def _check_processes(ledger: Ledger, before: Mapping[str, str | None], reference: str) -> None:
    """Fail where processes died, and not so before, of all variants or of the one with which all are compared."""
    died = _died(ledger)
    is_lost = reference in died or died.keys() == {each.key for each in ledger.results}
    is_new = reference not in before if reference in died else died.keys() != before.keys()
    if died and is_lost and is_new:
        which = f"{reference}, with which all are compared," if reference in died else "all variants"
        hint = "the next run times all again; what ends in the same way twice is a result"
        raise StepIncomplete(
            f"{which} could not be timed: {died.get(reference) or next(iter(died.values()))}", hint=hint
        )


def _died(ledger: Ledger) -> dict[str, str | None]:
    """Return why the processes of rows ended or hung, by key."""
    return {each.key: each.latency.reason for each in ledger.results if each.latency.died}


def sample_texts(rows: Sequence[Row], kind: Kind) -> list[TaskInput]:
    """Return the inputs of up to `TIMED_ROWS` rows, which represent all."""
    return [kind.to_input(row) for row in evenly_spaced(rows, TIMED_ROWS)]


Length = int | Literal["data"]


@dataclass(frozen=True)
class Measurement:
    """Everything that one step measures."""

    models: Sequence[TimedModel]
    targets: Sequence[Target]
    """Those that this machine has."""
    texts: Sequence[TaskInput]
    """Rows of the test set."""
    settings: Measure
    longest: int
    """The task's maximum length in word pieces."""
    seed: int = 0
    """Chooses which rows meet in a batch and the order of turns."""
    limits: bool = True
    """Measure the machine's own limits too."""
    console: Console = field(default_factory=partial(Console, "quiet"))

    def run(self) -> Ledger:
        """Time every row at every target it runs on and in the grid, then measure the machine's limits and memory."""
        begin, budget, grid = time.monotonic(), self.settings.budget, self.settings.grid
        surroundings = snapshot_machine(device=any(target.device == "cuda" for target in self.targets))
        timed = self._time_all()
        measure_limits = self.limits and (budget is None or budget - (time.monotonic() - begin) >= LIMITS_SECONDS)
        machine = tuple(self._machine_limits()) if measure_limits else ()
        end = begin + budget if budget else time.monotonic() + MEMORY_SECONDS
        memory = dict(self._serving(end, timed)) if self.settings.memory else {}
        return Ledger(
            results=tuple(
                TargetResult(
                    key=model.key,
                    target=target.title,
                    latency=timed[jobs[model.key].key],
                    shares=_shares(model, target, timed[jobs[model.key].key], machine),
                    serving=memory.get(_serving_key(target, model), ()),
                )
                for target in self.targets
                for jobs in [self._jobs(target, target.batch, target.length)]
                for model in self.models
                if model.key in jobs
            ),
            grid={target.title: tuple(self._cells(target, grid, timed)) for target in self.targets if grid},
            limits=machine,
            surroundings=surroundings,
        )

    def _jobs(self, target: Target, batch: int, length: Length) -> dict[str, Job]:
        """Return a job for each row by its key; targets with equal settings share jobs, whose own keys are equal."""
        return {
            model.key: Job(
                key=f"{target.device} t{target.threads} b{batch} l{length} {model.key}",
                folder=model.folder,
                variant=model.variant,
                placement=Placement(target.device, target.threads),
                batch=batch,
                length=None if length == "data" else length,
            )
            for model in self.models
            if target.title in model.titles
        }

    def _time_all(self) -> dict[str, Latency]:
        """Time the targets' own sessions, then the other cells of the grid; return the results by job key."""
        settings = self.settings
        own = {job.key: job for each in self.targets for job in self._jobs(each, each.batch, each.length).values()}
        cells = product(settings.grid.batch, settings.grid.length) if settings.grid else ()
        everywhere = (job for cell in cells for target in self.targets for job in self._jobs(target, *cell).values())
        grid = {job.key: job for job in everywhere if job.key not in own}
        begin = time.monotonic()
        budget = settings.budget and settings.budget * (TIMING_SHARE if settings.memory else 1.0)
        timed = self._time(own.values(), settings, budget and budget * len(own) / max(1, len(own) + len(grid)))
        seconds = time.monotonic() - begin
        for target in self.targets:
            rows = [timed[job.key] for job in self._jobs(target, target.batch, target.length).values()]
            if precision := _precision([latency for latency in rows if latency.model]):
                more = "" if settings.by_rounds else "; a longer measure.budget narrows them"
                self.console.note(f"{target.title}: {precision} after {duration(seconds)} of timing{more}")
        if not grid:
            return timed
        rest = budget and max(0.0, budget - seconds)
        if budget is None and not settings.by_rounds:
            rest = GRID_SECONDS * len({job.session for job in grid.values()})
        return timed | self._time(grid.values(), settings.model_copy(update={"callers": ()}), rest)

    def _time(self, jobs: Iterable[Job], settings: Measure, budget: float | None) -> dict[str, Latency]:
        """Time these jobs: where the budget has no time for all, those of the reference and of the smallest models."""

        def importance(job: Job) -> tuple[bool, int]:
            is_reference = (job.folder, job.variant) == (self.models[0].folder, self.models[0].variant)
            return not is_reference, sum(path.stat().st_size for path in job.folder.rglob("*") if path.is_file())

        ordered = sorted(jobs, key=importance)
        return time_jobs(ordered, self.texts, settings, seed=self.seed, console=self.console, budget=budget)

    def _cells(self, target: Target, grid: TimingGrid, timed: Mapping[str, Latency]) -> Iterator[GridCell]:
        for length, batch in product(grid.length, grid.batch):
            latencies = {key: timed[job.key] for key, job in self._jobs(target, batch, length).items()}
            yield GridCell(batch=batch, length=length, latencies=latencies)

    def _serving(self, end: float, timed: Mapping[str, Latency]) -> Iterator[tuple[str, tuple[ServingMemory, ...]]]:
        """Measure the memory of every row for every device and thread count, until ``end`` on the monotonic clock.

        First that of the reference, then of the fastest rows, one of which wins.
        """
        requests = {
            _serving_key(target, model): (target, model)
            for target in self.targets
            for model in self._by_speed(target, timed)
            if target.title in model.titles
        }
        batches, length, running = self.settings.memory, min(SERVED_LENGTH, self.longest), RunningProcesses()

        def serve(request: tuple[Target, TimedModel]) -> tuple[ServingMemory, ...]:
            target, model = request
            if time.monotonic() > end:
                reason = "not measured: the time for measuring was used up; a longer measure.budget allows more"
                return tuple(ServingMemory(batch=batch, length=length, reason=reason) for batch in batches)
            load = target.device, batches, length
            return serving_memory(model.folder, model.variant, *load, threads=target.threads, running=running)

        with (
            ThreadPoolExecutor(PARALLEL_PROCESSES) as pool,
            self.console.progress(len(requests), "memory", "models") as progress,
        ):
            try:
                for key, result in zip(requests, pool.map(serve, requests.values()), strict=True):
                    yield key, result
                    progress.advance(note=key)
            except BaseException:
                running.end()  # the processes ignore Ctrl-C, and the pool waits for them
                raise

    def _by_speed(self, target: Target, timed: Mapping[str, Latency]) -> list[TimedModel]:
        """Return the models, after the first, which others are compared with, by their time at a target."""
        jobs = self._jobs(target, target.batch, target.length)

        def median(model: TimedModel) -> float:
            time = timed[jobs[model.key].key].typical() if model.key in jobs else None
            return time.value if time else inf

        return [*self.models[:1], *sorted(self.models[1:], key=median)]

    def _machine_limits(self) -> Iterator[MachineLimits]:
        """Yield the limits of every device and number of threads; where they cannot be measured, only warn."""
        for device, threads in dict.fromkeys((target.device, target.threads) for target in self.targets):
            try:
                yield machine_limits(threads, device, console=self.console)
            except CompressError as error:
                count = pluralize(threads, "thread")
                self.console.warn(f"the limits of {device} with {count} were not measured: {error.message}")


def _serving_key(target: Target, model: TimedModel) -> str:
    """Return what memory is measured for once: a model on a device with a number of threads."""
    return f"{target.device} t{target.threads} {model.key}"


def _shares(
    model: TimedModel, target: Target, latency: Latency, machine: Sequence[MachineLimits]
) -> LimitShares | None:
    """Return the shares of the machine's limits that a model uses; None where one of both is not known."""
    info, limits = find_info(model.folder), find_limits(machine, target.device, target.threads)
    if not (latency.timed and limits and info and info.shape):
        return None
    weights = footprint(model.folder).bytes_weights
    return shares_of_limits(latency, info.shape, limits, model.precision, weights, target.batch)


def _precision(timed: Sequence[Latency]) -> str | None:
    """Return how precise the medians are, and the ratios to the first."""
    medians = [latency.model.p50 for latency in timed if latency.model]
    return describe_precision(medians, [times for latency in timed[1:] if (times := ratio(timed[0], latency))])
