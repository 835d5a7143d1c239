"""Starts, drives and restarts the worker processes of a session; one failure does not affect the others."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from compress.errors import CompressError
from compress.measure.resources.footprint import needed_files
from compress.measure.timing.job_result import job_result
from compress.measure.timing.latency import Job, Latency
from compress.measure.timing.process_limits import Cores, available_memory
from compress.measure.timing.schedule import (
    MIN_CALLS,
    Call,
    evenly_spaced,
    lap_seconds,
    shared_vocabulary,
)
from compress.measure.timing.worker_process import Unsupported, WorkerExited, WorkerHung, WorkerLost, WorkerProcess
from compress.measure.timing.worker_protocol import Command, Reply, WorkerSpec
from compress.model_folder.model_info import VariantInfo
from compress.recipe.measure_schema import Measure

START_TIMEOUT = 600.0
"""Seconds for a model to load, and again to warm up."""
TURN_TIMEOUT = 20.0
"""Seconds that any turn may take; slow ones may take `TURN_FACTOR` times their expected duration."""
TURN_FACTOR = 20.0
MAX_RESTARTS = 1
"""Processes of a job that may die and be restarted: one may be bad luck, a second one is the model's fault."""
MAX_PARTS = 4
"""Parts of a turn: the model alone, end to end, by the device's clock, and energy."""
READ_CHUNK = 1 << 24
"""Bytes."""


@dataclass
class Worker:
    """A job with its current process and everything that all its processes have recorded."""

    job: Job
    process: WorkerProcess[Reply]
    ready: Reply
    """Of the first process, which started alone."""
    start_seconds: float
    """From the launch of the first process to the end of its warm-up."""
    call_seconds: float
    seconds: float
    """Spent on the job so far."""
    number: int = 0
    """Of the current process, from 0."""
    lengths: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    """Of the calls of a turn; empty where all count alike."""
    turns: list[Reply] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    """For each turn, the number of the process that ran it."""
    unsteady: int = 0
    """Processes whose warm-up ended before their call time was steady."""
    laps: dict[int, list[Reply]] = field(default_factory=lambda: defaultdict(list))
    """By number of callers, of those that could be timed."""
    overloaded: dict[int, str] = field(default_factory=dict)
    """By number of callers that could not be timed, the reason."""
    lost: tuple[str, ...] = ()
    """How processes ended that were restarted."""


class WorkerPool:
    """All workers of a session. A job that fails gets a row in ``results`` and no more requests."""

    def __init__(
        self, jobs: Sequence[Job], calls: Sequence[Call], cores: Cores, seed: int, processes: ExitStack
    ) -> None:
        """Start nothing yet; ``processes`` ends every process on exit, at once after an error."""
        self.jobs = {job.key: job for job in jobs}
        self.calls = tuple(calls)
        self.results: dict[str, Latency] = {}
        self.all: dict[str, Worker] = {}
        self._cores = cores
        self._seed = seed
        # One limit for all: the memory that is free before any has started.
        self._memory = available_memory()
        self.turn = Command(do="turn")
        """The calls that are warmed up, and the length of a turn."""
        self._vocabulary = shared_vocabulary(job.folder for job in jobs)
        self._processes = processes

    @property
    def active(self) -> dict[str, Worker]:
        """The workers that have not failed."""
        return {key: worker for key, worker in self.all.items() if key not in self.results}

    def start(self, key: str) -> None:
        """Start the first process of a job, alone, so that its load time is its own."""
        job, begin = self.jobs[key], time.perf_counter()
        with self._catch_failure(key):
            warm_page_cache(job.folder, job.variant)
            process = self._launch(job)
            ready = process.receive(START_TIMEOUT)
            calls = evenly_spaced(min(MIN_CALLS, len(self.calls)), len(self.calls)) or [0]
            warm = process.request(Command(do="warm_up", calls=tuple(calls)), START_TIMEOUT)
            seconds = time.perf_counter() - begin
            self.all[key] = Worker(job, process, ready, seconds, warm.call_seconds, seconds)

    def restart_workers(self, keys: Iterable[str]) -> None:
        """Restart the processes of these jobs: all start at once, in this order, and warm up one after another.

        All old ones end before a new one starts, so that no job gets the memory that its own process has just freed.
        """
        workers = {key: self.all[key] for key in keys if key not in self.results}
        for worker in workers.values():
            worker.process.close_stdin()
        for worker in workers.values():
            worker.process.__exit__(None)
        for worker in workers.values():
            worker.process = self._launch(worker.job, worker.ready.imports)
        for key, worker in workers.items():
            with self._catch_failure(key):
                try:
                    worker.process.receive(START_TIMEOUT)
                    worker.number += 1
                except WorkerExited as end:
                    self._replace(worker, end)
        self.warm_up(workers)

    def warm_up(self, keys: Iterable[str]) -> None:
        """Run the calls of the coming turns until their times are steady."""
        for _, worker, reply in self._each(keys, self._warm_up, START_TIMEOUT):
            worker.call_seconds = reply.call_seconds
            worker.lengths = reply.latency.lengths
            worker.weights = reply.weights
            worker.unsteady += not reply.steady

    def take_turns(self, keys: Sequence[str], done: Callable[[str], None]) -> None:
        """Run one turn of each job, in this order; ``done`` is called after each."""
        expected = self.turn.seconds + MAX_PARTS * len(self.turn.calls) * self._slowest
        for key, worker, reply in self._each(keys, self.turn, max(TURN_TIMEOUT, TURN_FACTOR * expected)):
            worker.turns.append(reply)
            worker.processes.append(worker.number)
            done(key)

    def run_load(self, keys: Sequence[str], callers: int, seconds: float) -> None:
        """Run one number of callers for so long, one job after another; a job that fails keeps what was timed."""
        command = Command(do="load", calls=self.turn.calls, seconds=seconds, callers=callers)
        expected = lap_seconds(seconds, self._slowest) + callers * self._slowest
        for key in keys:
            if key in self.results or self.all[key].weights or callers in self.all[key].overloaded:
                continue  # calls that count differently, as some of cascades do, say nothing of their rate together
            worker, begin = self.all[key], time.perf_counter()
            try:
                worker.laps[callers].append(self._request(worker, command, TURN_TIMEOUT + 10 * expected))
            except WorkerLost as end:
                worker.overloaded[callers] = str(end)
                worker.laps.pop(callers, None)
                with self._catch_failure(key):
                    self._renew(worker)
                    worker.process.request(self._warm_up, START_TIMEOUT)
            worker.seconds += time.perf_counter() - begin

    def finish(self, settings: Measure) -> None:
        """End the remaining jobs with their results."""
        for key, worker, last in self._each(list(self.active), Command(do="close"), TURN_TIMEOUT):
            self.results[key] = job_result(
                worker, last.latency, settings, self._seed, self._cores, len(self.turn.calls)
            )

    def _each(self, keys: Iterable[str], command: Command, timeout: float) -> Iterator[tuple[str, Worker, Reply]]:
        for key in keys:
            if key in self.results:
                continue
            worker = self.all[key]
            begin = time.perf_counter()
            with self._catch_failure(key):
                reply = self._request(worker, command, timeout)
                worker.seconds += time.perf_counter() - begin
                yield key, worker, reply

    def _request(self, worker: Worker, command: Command, timeout: float) -> Reply:
        """Return the reply; if the process exits meanwhile, that of its replacement."""
        try:
            return worker.process.request(command, timeout)
        except WorkerExited as end:
            self._replace(worker, end)
        if command.do != "warm_up":
            worker.process.request(self._warm_up, START_TIMEOUT)
        return worker.process.request(command, timeout)

    def _replace(self, worker: Worker, end: WorkerExited) -> None:
        """Start another process after one exited; too many exits are the job's failure."""
        if len(worker.lost) >= MAX_RESTARTS:
            raise end
        worker.lost += (str(end),)
        self._renew(worker)

    def _renew(self, worker: Worker) -> None:
        """Start another process in place of the worker's."""
        worker.process.__exit__(None)
        worker.process = self._launch(worker.job, worker.ready.imports)
        worker.process.receive(START_TIMEOUT)
        worker.number += 1

    def _launch(self, job: Job, imports: tuple[str, ...] = ()) -> WorkerProcess[Reply]:
        """Start a process and send it its model; its first reply must be received next."""
        process = WorkerProcess("compress.measure.timing.worker", Reply, job.placement.threads)
        self._processes.enter_context(process)
        spec = WorkerSpec(
            job=job,
            cores=self._cores,
            calls=self.calls,
            seed=self._seed,
            vocabulary=self._vocabulary,
            launched=process.launched,
            imports=imports,
            # A CUDA context maps far more memory than it uses.
            memory=self._memory if job.placement.device == "cpu" else None,
        )
        process.send(spec)
        return process

    @property
    def _warm_up(self) -> Command:
        return Command(do="warm_up", calls=self.turn.calls)

    @property
    def _slowest(self) -> float:
        """Seconds a call of the slowest model."""
        return max((worker.call_seconds for worker in self.active.values()), default=0.0)

    @contextmanager
    def _catch_failure(self, key: str) -> Iterator[None]:
        """Record how a job ended instead of ending the session."""
        try:
            yield
        except WorkerLost as end:
            if isinstance(end, Unsupported):
                self.results[key] = Latency(status="not measured", reason=str(end))
            else:
                died = isinstance(end, WorkerExited | WorkerHung)
                self.results[key] = Latency(status="failed", reason=str(end), died=died)


def warm_page_cache(model: Path, variant: VariantInfo | None = None) -> None:
    """Read a model's files once, so that every model is first loaded from the page cache."""
    with suppress(CompressError, OSError):  # a model that cannot be read fails when it is opened
        for path in needed_files(model, variant):
            with path.open("rb") as stream:
                while stream.read(READ_CHUNK):
                    pass
