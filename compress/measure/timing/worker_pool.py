"""Starts, drives and restarts the worker processes of a session; one failure does not affect the others."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from compress.errors import CompressError
from compress.measure.interference.monitor import Interference
from compress.measure.resources.footprint import needed_files
from compress.measure.timing.cpu_affinity import Cores
from compress.measure.timing.latency import Job, Latency, Round
from compress.measure.timing.process_limits import available_memory
from compress.measure.timing.schedule import lap_seconds
from compress.measure.timing.timing_inputs import MIN_CALLS, Call, evenly_spaced, shared_vocabulary
from compress.measure.timing.worker_process import Unsupported, WorkerExited, WorkerLost, WorkerProcess
from compress.measure.timing.worker_protocol import Command, Reply, WorkerSpec
from compress.model_info import VariantInfo

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
    process: WorkerProcess
    ready: Reply
    """Of the first process, which started alone."""
    start_seconds: float
    """From the launch of the first process to the end of its warm-up."""
    call_seconds: float
    number: int = 0
    """Of the current process, from 0."""
    lengths: tuple[int, ...] = ()
    model: list[Round] = field(default_factory=list)
    end_to_end: list[Round] = field(default_factory=list)
    device: list[Round] = field(default_factory=list)
    model_waits: list[Round] = field(default_factory=list)
    end_to_end_waits: list[Round] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    """For each round, the number of the process that ran it."""
    interference: list[Interference] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)
    energy_calls: int = 0
    """Calls that consumed them."""
    unsteady: int = 0
    """Processes whose warm-up ended before their call time was steady."""
    laps: dict[int, list[Reply]] = field(default_factory=lambda: defaultdict(list))
    """By number of callers."""
    seconds: float = 0.0
    lost: tuple[str, ...] = ()
    """How processes ended that were restarted."""

    def record(self, reply: Reply) -> None:
        """Add one turn."""
        self.model.append(np.asarray(reply.model))
        self.model_waits.append(np.asarray(reply.model_waits))
        if reply.end_to_end:
            self.end_to_end.append(np.asarray(reply.end_to_end))
            self.end_to_end_waits.append(np.asarray(reply.end_to_end_waits))
        if reply.device:
            self.device.append(np.asarray(reply.device))
        self.processes.append(self.number)
        if reply.interference is not None:
            self.interference.append(reply.interference)
        if reply.joules is not None:
            self.joules.append(reply.joules)
            self.energy_calls += reply.energy_calls


class WorkerPool:
    """All workers of a session. A job that fails gets a row in ``results`` and no more requests."""

    def __init__(self, jobs: Sequence[Job], calls: Sequence[Call], cores: Cores | None, seed: int) -> None:
        self.jobs = jobs
        self.calls = tuple(calls)
        self.results: dict[str, Latency] = {}
        self.all: dict[str, Worker] = {}
        self._cores = cores
        self._seed = seed
        # One limit for all: the memory that is free before any has started.
        self._memory = available_memory()
        self._warm_up = Command(do="warm_up")
        self._vocabulary = shared_vocabulary(job.folder for job in jobs)
        self._stack = ExitStack()

    def __enter__(self) -> WorkerPool:
        """Return the pool; no process starts yet."""
        return self

    def __exit__(self, *ending: object) -> None:
        """End every process; at once after an error."""
        self._stack.__exit__(*ending)  # type: ignore[arg-type]

    @property
    def active(self) -> dict[str, Worker]:
        """The workers that have not failed."""
        return {key: worker for key, worker in self.all.items() if key not in self.results}

    def start(self, job: Job) -> None:
        """Start the first process of a job, alone, so that its load time is its own."""
        begin = time.perf_counter()
        with self._catch_failure(job.key):
            warm_page_cache(job.folder, job.variant)
            process = self._launch(job)
            ready = process.request(self._spec(job, process), START_TIMEOUT)
            calls = evenly_spaced(min(MIN_CALLS, len(self.calls)), len(self.calls)) or [0]
            warm = process.request(Command(do="warm_up", calls=tuple(calls)), START_TIMEOUT)
            seconds = time.perf_counter() - begin
            self.all[job.key] = Worker(job, process, ready, seconds, warm.call_seconds or 0.0, seconds=seconds)

    def restart_workers(self, keys: Iterable[str], warm_up: Command) -> None:
        """Restart the processes of these jobs: all start at once, in this order, and warm up one after another.

        All old ones end before a new one starts, so that no job gets the memory that its own process has just freed.
        """
        workers = {key: self.all[key] for key in keys if key not in self.results}
        for worker in workers.values():
            worker.process.close_stdin()
        for worker in workers.values():
            worker.process.__exit__(None, None, None)
        for key, worker in workers.items():
            with self._catch_failure(key):
                worker.process = self._launch(worker.job)
                worker.process.send(self._spec(worker.job, worker.process, worker.ready.imports))
        for key, worker in workers.items():
            if key not in self.results:
                with self._catch_failure(key):
                    self._wait_until_ready(worker)
        self.warm_up(workers, warm_up)

    def warm_up(self, keys: Iterable[str], command: Command) -> None:
        """Run the calls of the coming turns until their times are steady."""
        self._warm_up = command
        for _, worker, reply in self._each(keys, command, START_TIMEOUT):
            worker.call_seconds = reply.call_seconds or worker.call_seconds
            worker.lengths = reply.lengths
            worker.unsteady += reply.steady is False

    def take_turns(self, keys: Sequence[str], command: Command, done: Callable[[str], None]) -> None:
        """Run one turn of each job, in this order; ``done`` is called after each."""
        expected = command.seconds + MAX_PARTS * len(command.calls) * self._slowest
        for key, worker, reply in self._each(keys, command, max(TURN_TIMEOUT, TURN_FACTOR * expected)):
            worker.record(reply)
            done(key)

    def run_load(self, keys: Sequence[str], command: Command) -> None:
        """Run one number of callers, one job after another."""
        seconds = lap_seconds(command.seconds, self._slowest) + command.callers * self._slowest
        for _, worker, reply in self._each(keys, command, TURN_TIMEOUT + 10 * seconds):
            worker.laps[command.callers].append(reply)

    def close(self) -> dict[str, Reply]:
        """Return the last reply of each remaining worker."""
        return {key: reply for key, _, reply in self._each(list(self.active), Command(do="close"), TURN_TIMEOUT)}

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

    def _wait_until_ready(self, worker: Worker) -> None:
        try:
            worker.process.receive(START_TIMEOUT)
            worker.number += 1
        except WorkerExited as end:
            self._replace(worker, end)

    def _replace(self, worker: Worker, end: WorkerExited) -> None:
        """Start another process after one exited; too many exits are the job's failure."""
        if len(worker.lost) >= MAX_RESTARTS:
            raise end
        worker.lost += (str(end),)
        worker.process.__exit__(None, None, None)
        worker.process = self._launch(worker.job)
        worker.process.request(self._spec(worker.job, worker.process, worker.ready.imports), START_TIMEOUT)
        worker.number += 1

    def _launch(self, job: Job) -> WorkerProcess:
        return self._stack.enter_context(WorkerProcess(job.placement.threads))

    @property
    def _slowest(self) -> float:
        """Seconds a call of the slowest model."""
        return max((worker.call_seconds for worker in self.active.values()), default=0.0)

    @contextmanager
    def _catch_failure(self, key: str) -> Iterator[None]:
        """Record how a job ended instead of ending the session."""
        try:
            yield
        except Unsupported as end:
            self.results[key] = Latency(status="not measured", reason=str(end))
        except WorkerLost as end:
            self.results[key] = Latency(status="failed", reason=str(end))

    def _spec(self, job: Job, process: WorkerProcess, imports: tuple[str, ...] = ()) -> WorkerSpec:
        return WorkerSpec(
            folder=os.fspath(job.folder),
            variant=job.variant,
            device=job.placement.device,
            threads=job.placement.threads,
            cores=self._cores.own if self._cores else None,
            neighbours=self._cores.neighbours if self._cores else (),
            batch=job.batch,
            length=job.length,
            calls=self.calls,
            seed=self._seed,
            vocabulary=self._vocabulary,
            launched=process.launched,
            imports=imports,
            delay=job.delay,
            # A CUDA context maps far more memory than it uses.
            memory=self._memory if job.placement.device == "cpu" else None,
        )


def warm_page_cache(model: Path, variant: VariantInfo | None = None) -> None:
    """Read a model's files once, so that every model is first loaded from the page cache."""
    with suppress(CompressError, OSError):  # a model that cannot be read fails when it is opened
        for path in needed_files(model, variant):
            with path.open("rb") as stream:
                while stream.read(READ_CHUNK):
                    pass
