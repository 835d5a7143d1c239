"""The measuring session: jobs that take turns on the same cores, and one answer a job whatever happens."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from compress.console import Console, Progress
from compress.environment import usable_cores
from compress.errors import UsageError
from compress.measure.interference.interference import (
    aggregate,
    disturbances,
    uneven_laps,
    unsteady_starts,
    waited_share,
)
from compress.measure.timing.cpu_affinity import Cores, choose_cores
from compress.measure.timing.latency import Job, Latency, Round, Timing, UnderLoad, throughput, timing
from compress.measure.timing.schedule import (
    BUDGET_ROUNDS,
    FEWEST_ROUNDS,
    LEAST_FOR_P95,
    LOAD_CALLS,
    LOAD_LAPS,
    budget_too_small,
    generation_fits,
    pending_work,
    rounds_before_restart,
    rounds_in_time,
    rounds_per_process,
    turn_orders,
    turn_seconds,
)
from compress.measure.timing.timing_inputs import Text, calls_in_turn, make_calls, spaced
from compress.measure.timing.worker_pool import Worker, WorkerPool
from compress.measure.timing.worker_protocol import Order, Reply
from compress.recipe.measure_schema import Measure

DEFAULTS = Measure()
PATIENCE = 1.5
"""Times that a round may take of what was meant for it before there are fewer rounds."""


def time_jobs(
    jobs: Sequence[Job],
    texts: Sequence[Text],
    settings: Measure = DEFAULTS,
    *,
    seed: int = 0,
    console: Console | None = None,
    given_up: dict[object, str] | None = None,
) -> dict[str, Latency]:
    """Time all jobs and answer for each of them.

    Args:
        jobs: those with the same place, batch and length are timed together and can be compared by ``ratio``.
        texts: rows of the test set, a few hundred at random, for jobs at the data's own lengths.
        settings: rounds and the processes they are spread over, seconds of a turn (shared by the model alone and end to
            end) or a budget for each session, numbers of callers, resamples behind an interval.
        seed: chooses which rows meet in a batch and the order of turns.
        console: is told of progress.
        given_up: models whose loading alone was over the budget, with the reason; they are not started again. Filled
            here; hand on the same one to calls that belong together.
    """
    keys = [job.key for job in jobs]
    if len(set(keys)) != len(keys):
        raise UsageError(f"two jobs are called {next(key for key in keys if keys.count(key) > 1)}.")
    if not texts and any(job.length is None for job in jobs):
        raise UsageError("jobs at the data's own lengths need texts.")
    sessions: dict[object, list[Job]] = {}
    for job in jobs:
        sessions.setdefault(job.session, []).append(job)
    found: dict[str, Latency] = {}
    given_up = {} if given_up is None else given_up
    turns = None if settings.budget else len(jobs) * (settings.rounds + 1)
    with (console or Console("quiet")).progress(turns, "measure", "turns") as progress:
        for together in sessions.values():
            models = (settings.budget, *sorted(f"{job.place} {job.variant} {job.folder}" for job in together))
            if models in given_up:
                lost = Latency(status="not measured", reason=given_up[models])
                found |= {job.key: lost for job in together}
                continue
            answers, hopeless = _time_session(together, texts, settings, seed, progress)
            found |= answers
            if hopeless:
                given_up[models] = hopeless
    return {key: found[key] for key in keys}


def _time_session(
    jobs: Sequence[Job], texts: Sequence[Text], settings: Measure, seed: int, progress: Progress
) -> tuple[dict[str, Latency], str | None]:
    """An answer for each job, and why no other session with these models need be tried; None where it may."""
    threads, usable = jobs[0].place.threads, usable_cores()
    if threads > usable:
        reason = f"{threads} threads were asked for and this machine has {usable} cores"
        return {job.key: Latency(status="not measured", reason=reason) for job in jobs}, None
    calls = make_calls(texts, jobs[0].batch, seed) if jobs[0].length is None else []
    begin = time.perf_counter()
    cores = choose_cores(threads)
    with WorkerPool(jobs, calls, cores, seed) as crew:
        session = Session(crew, settings, seed, progress, begin)
        if session.start():
            session.go_around()
            session.sweep()
            for key, last in crew.close().items():
                crew.found[key] = _latency(crew.all[key], last, settings, seed, cores, session.order)
        return crew.found, session.hopeless


@dataclass
class Session:
    """The course of one session."""

    crew: WorkerPool
    settings: Measure
    seed: int
    progress: Progress
    begin: float
    order: Order = field(default_factory=lambda: Order(do="turn"))
    """What a turn is."""
    rounds: int = 0
    round_seconds: float = 0.0
    """What the last round took; foreseen, before the first one."""
    hopeless: str | None = None
    """Why there was nothing, where loading the models alone took the whole budget, whatever they are fed."""
    starts: Iterator[list[str]] = field(init=False)
    """The order in which each generation's processes are started and warmed up: who comes first gets other memory than
    who comes second, and were it always the same job its ratios would tell of that."""

    def __post_init__(self) -> None:
        """Orders in pairs, there and back, as those of the rounds."""
        self.starts = turn_orders([job.key for job in self.crew.jobs], self.seed + 2)

    @property
    def left(self) -> float | None:
        """Seconds left of the budget for rounds; None without one."""
        if self.settings.budget is None:
            return None
        return self.settings.budget - (time.perf_counter() - self.begin) - self.after

    @property
    def after(self) -> float:
        """Seconds that the callers will take when the rounds are over."""
        calls = {key: member.call_seconds for key, member in self.crew.members.items()}
        return pending_work(self.settings.callers, calls, self.settings.seconds)

    def start(self) -> bool:
        """Start every job and lay out the turns; whether there is anything to go around."""
        jobs = {job.key: job for job in self.crew.jobs}
        for job in (jobs[key] for key in next(self.starts)):
            if self.left is not None and self.left <= 0:
                self._give_up(None)
                return False
            self.crew.start(job)
            self.progress.advance(note=job.key)
        if not self.crew.members:
            return False
        self._lay_out()
        if self.left is not None and self.left < FEWEST_ROUNDS * self.round_seconds:
            self._give_up(self.round_seconds)
            return False
        self.crew.warm(list(self.crew.members), self.order.model_copy(update={"do": "warm"}))
        return bool(self.crew.members)

    def go_around(self) -> None:
        """All rounds, in generations of processes."""
        turns = turn_orders(list(self.crew.members), self.seed)
        settings, wanted = self.settings, self.settings.seconds * len(self.crew.members)
        rounds = rounds_in_time(settings.rounds, settings.processes, self.round_seconds, wanted * PATIENCE)
        planned = rounds_per_process(rounds, settings.processes)
        generation = 0
        while True:
            starts = next(self.starts) if generation else []
            due = [key for key in starts if key in self.crew.members and self._ends(key, generation)]
            if self.left is None:
                count = planned[generation] if generation < len(planned) else 0
            else:
                count, due = self._affordable(due)
            if not count or not self.crew.members:
                return
            if due:
                self.crew.renew(due, self.order.model_copy(update={"do": "warm"}))
            for _ in range(count):
                self._round(next(turns))
            generation += 1

    def _ends(self, key: str, generation: int) -> bool:
        """Whether the life of a job's process ends where this generation begins."""
        return generation % rounds_before_restart(self.crew.all[key].start_seconds) == 0

    def sweep(self) -> None:
        """Every number of callers for every job, twice, interleaved."""
        turns = turn_orders(list(self.crew.members), self.seed + 1)
        for _ in range(LOAD_LAPS if self.settings.callers else 0):
            for callers in self.settings.callers:
                load = self.order.model_copy(update={"do": "load", "callers": callers, "least": LOAD_CALLS})
                self.crew.take_load(next(turns), load.model_copy(update={"seconds": self.settings.seconds}))

    def _round(self, keys: Sequence[str]) -> None:
        begin = time.perf_counter()
        self.crew.take_turns(keys, self.order, lambda key: self.progress.advance(note=key))
        self.round_seconds = time.perf_counter() - begin
        self.rounds += 1

    def _affordable(self, due: list[str]) -> tuple[int, list[str]]:
        """The rounds of the next generation within the budget, and who starts anew in it."""
        left, restart = self.left or 0.0, sum(self.crew.all[key].start_seconds for key in due)
        count = generation_fits(left, restart, self.round_seconds)
        if not count:
            count, due = generation_fits(left, 0.0, self.round_seconds), []
        if self.rounds + count < FEWEST_ROUNDS and not count:
            count = FEWEST_ROUNDS - self.rounds  # a few seconds too long rather than nothing at all
        return min(count, BUDGET_ROUNDS) or 0, due

    def _lay_out(self) -> None:
        """How long a turn is and which calls it holds."""
        members = list(self.crew.members.values())
        seconds = self.settings.seconds
        if self.left is not None:
            restart = sum(one.start_seconds / rounds_before_restart(one.start_seconds) for one in members)
            seconds = turn_seconds(self.left, restart, len(members), seconds)
        available, slowest = len(self.crew.calls) or 1, max(one.call_seconds for one in members)
        count = calls_in_turn(available, slowest, seconds / 2)
        self.order = Order(do="turn", calls=tuple(spaced(count, available)), seconds=seconds)
        parts = 2 if self.crew.calls else 1
        self.round_seconds = sum(max(seconds, parts * count * one.call_seconds) for one in members)

    def _give_up(self, round_seconds: float | None) -> None:
        """A row for each job that says that the budget does not reach."""
        budget, took = self.settings.budget or 0.0, time.perf_counter() - self.begin
        started = [one.ready.load_seconds or 0.0 for one in self.crew.all.values()]
        reason = budget_too_small(budget, len(self.crew.jobs), took, len(started), round_seconds, self.after)
        self.hopeless = reason if sum(started) >= budget else None
        for job in self.crew.jobs:
            self.crew.found.setdefault(job.key, Latency(status="not measured", reason=reason))


def _latency(one: Worker, last: Reply, settings: Measure, seed: int, cores: Cores | None, order: Order) -> Latency:
    width = len(order.calls)

    def summed_up(rounds: list[Round], waited: list[Round]) -> Timing:
        return timing(rounds, settings.bootstrap, seed, one.processes, width, waited)

    model = summed_up(one.model, one.model_waited)
    full = summed_up(one.end_to_end, one.end_to_end_waited) if one.end_to_end else None
    device = summed_up(one.device, []) if one.device else None
    beside = [len(group) for group in cores.beside] if cores else []
    noise = aggregate(one.heard, len(cores.own) if cores else 0, beside)
    if noise is not None:
        share = waited_share([*one.model, *one.end_to_end], [*one.model_waited, *one.end_to_end_waited])
        noise = noise.model_copy(update={"waited": share})
    seen = disturbances(noise, model, full, device) + unsteady_starts(one.unsteady, len(set(one.processes)))
    joules = sum(one.joules) / (one.metered * one.job.batch) if len(one.joules) == len(one.model) else None
    return Latency(
        status="unstable" if seen else "measured",
        reason="; ".join([*seen, *map(_replaced, one.died), *filter(None, [one.ready.unwatched])]) or None,
        model=model,
        end_to_end=full,
        device=device,
        rows_per_second=throughput(one.model, one.job.batch),
        under_load=tuple(_under_load(one, callers, cores) for callers in settings.callers),
        load_seconds=one.ready.load_seconds,
        first_answer_seconds=one.ready.first_answer_seconds,
        resident_memory=last.resident_memory,
        peak_memory=last.peak_memory,
        device_memory=last.device_memory,
        joules_per_row=joules,
        energy=one.ready.energy,
        noise=noise,
        precision=(model.p50.high - model.p50.low) / 2 / model.p50.value,
        lengths=one.lengths,
        seconds=one.spent,
        runs_with=one.ready.runs_with,
    )


def _replaced(end: str) -> str:
    """How a process ended, as part of a reason."""
    return f"another process was started in place of one that was lost: {end}"


def _under_load(one: Worker, callers: int, cores: Cores | None) -> UnderLoad:
    laps = one.laps[callers]
    waits = np.concatenate([lap.waits for lap in laps])
    rows, seconds = [len(lap.waits) * one.job.batch for lap in laps], [lap.seconds or 0.0 for lap in laps]
    rates = [count / took for count, took in zip(rows, seconds, strict=True)]
    beside = [len(group) for group in cores.beside] if cores else []
    seen = uneven_laps([lap.heard for lap in laps], rates, len(cores.own) if cores else 0, beside)
    return UnderLoad(
        callers=callers,
        rows_per_second=sum(rows) / sum(seconds),
        p50=float(np.median(waits)),
        p95=float(np.quantile(waits, 0.95)) if len(waits) >= LEAST_FOR_P95 else None,
        calls=len(waits),
        unstable="; ".join(seen) or None,
    )
