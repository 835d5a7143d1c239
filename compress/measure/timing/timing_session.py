"""The timing session: jobs take turns on the same cores, and each gets one result, even if it fails.

Jobs with the same placement, batch and length form a session. Each job is a resident worker process; a round gives
every worker one turn over the same inputs, in an order that is shuffled and then reversed, so that a machine that slows
down slows all of them and ratios hold. Every few rounds the processes are restarted, since two processes of the same
model differ: intervals rest on the processes, not on the many calls of each (see ``quality/significance``).
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from math import inf
from statistics import median_low

from compress.console import Console, Progress
from compress.environment import usable_cores
from compress.errors import UsageError
from compress.measure.timing import schedule
from compress.measure.timing.latency import Job, Latency
from compress.measure.timing.process_limits import choose_cores
from compress.measure.timing.schedule import calls_in_turn, evenly_spaced, make_calls
from compress.measure.timing.worker_pool import WorkerPool
from compress.measure.timing.worker_protocol import Command
from compress.recipe.measure_schema import Measure
from compress.tasks.base import TaskInput

DEFAULTS = Measure()
COMPARED = 2
"""Jobs that are started whatever it takes: a ratio needs so many."""
TOLERANCE = 1.5
"""How many times its planned duration a round may take before the number of rounds is reduced."""


def time_jobs(
    jobs: Sequence[Job],
    texts: Sequence[TaskInput],
    settings: Measure = DEFAULTS,
    *,
    seed: int = 0,
    console: Console | None = None,
    budget: float | None = None,
) -> dict[str, Latency]:
    """Time all jobs and return one result for each.

    Args:
        jobs: those with the same placement, batch and length are timed together and can be compared by ``ratio``.
        texts: rows of the test set, a few hundred at random, for jobs at the data's own lengths.
        settings: a budget for all jobs, or rounds and the processes they are spread over; seconds of a turn (shared by
            the model alone and end to end), numbers of callers, resamples behind an interval. Without budget, rounds
            and processes: `DEFAULT_ROUNDS` in `DEFAULT_PROCESSES`, or what fits into `DEFAULT_BUDGET`, but no fewer
            than `MIN_ROUNDS`.
        seed: chooses which rows meet in a batch and the order of turns.
        console: shows progress.
        budget: seconds that replace those of the settings.
    """
    keys = [job.key for job in jobs]
    if len(set(keys)) != len(keys):
        raise UsageError(f"two jobs have the name {next(key for key in keys if keys.count(key) > 1)}.")
    if not texts and any(job.length is None for job in jobs):
        raise UsageError("jobs at the data's own lengths need texts.")
    sessions: dict[object, list[Job]] = {}
    for job in jobs:
        sessions.setdefault(job.session, []).append(job)
    if budget is None and not settings.by_rounds:
        budget = settings.budget or schedule.DEFAULT_BUDGET
    results: dict[str, Latency] = {}
    left, remaining = budget, len(jobs)
    turns = len(jobs) * ((settings.rounds or schedule.DEFAULT_ROUNDS) + 1) if budget is None else None
    with (console or Console("quiet")).progress(turns, "measure", "turns") as progress:
        for members in sessions.values():
            share = None if left is None else max(0.0, left) * len(members) / remaining
            begin = time.perf_counter()
            results |= _time_session(members, texts, settings, share, seed, progress)
            left = None if left is None else left - (time.perf_counter() - begin)
            remaining -= len(members)
    return {key: results[key] for key in keys}


def _time_session(
    jobs: Sequence[Job],
    texts: Sequence[TaskInput],
    settings: Measure,
    budget: float | None,
    seed: int,
    progress: Progress,
) -> dict[str, Latency]:
    threads, usable = jobs[0].placement.threads, usable_cores()
    if threads > usable:
        reason = f"{threads} threads were requested and this machine has {usable} cores"
        return {job.key: Latency(status="not measured", reason=reason) for job in jobs}
    calls = make_calls(texts, jobs[0].batch, seed) if jobs[0].length is None else []
    begin = time.perf_counter()
    with ExitStack() as processes:
        pool = WorkerPool(jobs, calls, choose_cores(threads), seed, processes)
        session = Session(pool, settings, budget, seed, progress, begin)
        if session.start():
            session.run_rounds()
            session.run_load_test()
            pool.finish(settings)
        return pool.results


class Session:
    """The course of one session."""

    def __init__(
        self, pool: WorkerPool, settings: Measure, budget: float | None, seed: int, progress: Progress, begin: float
    ) -> None:
        self.pool, self.settings, self.seed, self.progress = pool, settings, seed, progress
        self.budget, self.begin = budget, begin
        """Seconds for everything; None runs the rounds of the settings."""
        self.rounds = 0
        self.round_seconds = 0.0
        """Duration of the last round; before the first one, the expected duration."""
        self.start_orders = schedule.turn_orders(list(pool.jobs), seed + 2)
        """The order in which each generation's processes are started and warmed up: the first to start gets other
        memory than the second, and if it were always the same job its ratios would show that."""

    @property
    def strict(self) -> bool:
        """Whether the user set the budget: then a job that does not fit is not measured."""
        return self.settings.budget is not None

    @property
    def _budgets(self) -> tuple[float, float]:
        """Seconds for this session, and those that the user set for all."""
        return self.budget or 0.0, self.settings.budget or 0.0

    @property
    def left(self) -> float:
        """Seconds left of the budget for rounds."""
        if self.budget is None:
            return inf
        return self.budget - (time.perf_counter() - self.begin) - (self.load_seconds if self.strict else 0.0)

    @property
    def load_seconds(self) -> float:
        """Seconds that the load test takes after the rounds."""
        calls = {key: worker.call_seconds for key, worker in self.pool.active.items()}
        return schedule.load_test_seconds(self.settings.callers, calls, self.settings.seconds)

    def start(self) -> bool:
        """Start every job and plan the turns; return whether there is anything to time.

        Where starting all of them would use up the user's budget, those that were named first are started and timed;
        so within a budget the two that a ratio needs are started before it is known what the others take.
        """
        waiting, named = list(next(self.start_orders)), list(self.pool.jobs)
        if self.strict:
            waiting.sort(key=lambda key: key not in named[:COMPARED])
        while waiting:
            if not self._can_start(len(waiting)):
                waiting.sort(key=named.index)
                has_ratio = len(self.pool.active) >= COMPARED and named[0] not in waiting
                if has_ratio and not self._can_start(1):
                    self._leave_out(waiting)
                    break
            if self._lacks(0.0):
                return False
            key = waiting.pop(0)
            self.pool.start(key)
            self.progress.advance(note=key)
        if not self.pool.active:
            return False
        self._plan_turns()
        if self._lacks(schedule.MIN_ROUNDS * self.round_seconds - schedule.OVERRUN * (self.budget or 0.0)):
            return False
        self.pool.warm_up(list(self.pool.active))
        return bool(self.pool.active)

    def run_rounds(self) -> None:
        """Run all rounds, in generations of processes."""
        turns = schedule.turn_orders(list(self.pool.active), self.seed)
        wanted = self.settings.seconds * len(self.pool.active) * TOLERANCE
        planned = schedule.planned_rounds(self.settings.rounds, self.settings.processes, self.round_seconds, wanted)
        generation = 0
        while generation < len(planned) or self.strict:
            starts = next(self.start_orders) if generation else []
            active = self.pool.active
            lives = {key: schedule.generations_lived(worker.start_seconds) for key, worker in active.items()}
            due = [key for key in starts if key in active and generation % lives[key] == 0]
            if self.budget is None:
                count = planned[generation]
            else:
                count, due = self._affordable(due)
            if not count or not active:
                return
            if due:
                self.pool.restart_workers(due)
            for _ in range(count):
                begin = time.perf_counter()
                self.pool.take_turns(next(turns), lambda key: self.progress.advance(note=key))
                self.round_seconds = time.perf_counter() - begin
            self.rounds += count
            generation += 1

    def run_load_test(self) -> None:
        """Run a closed loop of every number of callers for every job, twice, interleaved."""
        turns = schedule.turn_orders(list(self.pool.active), self.seed + 1)
        for callers in schedule.LOAD_LAPS * self.settings.callers:
            self.pool.run_load(next(turns), callers, self.settings.seconds)

    def _can_start(self, more: int) -> bool:
        """Whether starting so many further jobs leaves the user's budget its share for timing."""
        if not self.strict or not self.pool.all:
            return True
        return self._until_started(more) <= schedule.STARTING_SHARE * (self.budget or 0.0)

    def _until_started(self, more: int) -> float:
        """Return the seconds from the start of the session until so many further jobs have started.

        Each takes the median of those before it: the first to import a library may take ten times as long.
        """
        usual = median_low(worker.start_seconds for worker in self.pool.all.values())
        return time.perf_counter() - self.begin + more * usual

    def _leave_out(self, keys: Sequence[str]) -> None:
        """Time none of these jobs."""
        reason = schedule.left_out(*self._budgets, len(self.pool.jobs), self._until_started(len(keys)))
        self.pool.results |= {key: Latency(status="not measured", reason=reason) for key in keys}

    def _lacks(self, seconds: float) -> bool:
        """Whether the user's budget leaves no more than ``seconds``; then it is every job's reason."""
        if not self.strict or self.left > seconds:
            return False
        count = len(self.pool.jobs)
        rounds = schedule.MIN_ROUNDS * (self.round_seconds or count * schedule.MIN_TURN_SECONDS)
        starting = self._until_started(count - len(self.pool.all)) if self.pool.all else None
        reason = schedule.budget_too_small(*self._budgets, count, starting, rounds + self.load_seconds)
        for key in self.pool.jobs:
            self.pool.results.setdefault(key, Latency(status="not measured", reason=reason))
        return True

    def _affordable(self, due: list[str]) -> tuple[int, list[str]]:
        """Return the rounds of the next generation within the budget, and the jobs that are restarted for it."""
        restart = sum(self.pool.all[key].start_seconds for key in due)
        count = schedule.rounds_that_fit(self.left, restart, self.round_seconds)
        if not count:
            count, due = schedule.rounds_that_fit(self.left, 0.0, self.round_seconds), []
        # A few seconds too long rather than no result at all.
        return count or max(0, schedule.MIN_ROUNDS - self.rounds), due

    def _plan_turns(self) -> None:
        """Choose the length of a turn and its calls."""
        workers = list(self.pool.active.values())
        restart = sum(worker.start_seconds / schedule.generations_lived(worker.start_seconds) for worker in workers)
        seconds = schedule.turn_seconds(self.left, restart, len(workers), self.settings.seconds)
        available, slowest = len(self.pool.calls) or 1, max(worker.call_seconds for worker in workers)
        count = calls_in_turn(available, slowest, seconds / 2)
        self.pool.turn = Command(do="turn", calls=tuple(evenly_spaced(count, available)), seconds=seconds)
        parts = 2 if self.pool.calls else 1
        self.round_seconds = sum(max(seconds, parts * count * worker.call_seconds) for worker in workers)
