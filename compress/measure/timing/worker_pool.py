"""The workers of one session: started, fed, listened to, replaced, and lost without the others taking harm."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from compress.errors import CompressError
from compress.measure.interference.interference import Interference
from compress.measure.resources.footprint import needed_files
from compress.measure.timing.cpu_affinity import Cores
from compress.measure.timing.latency import Job, Latency, Round
from compress.measure.timing.process_limits import memory_to_use
from compress.measure.timing.schedule import lap_seconds
from compress.measure.timing.timing_inputs import LEAST_CALLS, Call, shared_vocabulary, spaced
from compress.measure.timing.worker_process import Unsupported, WorkerExited, WorkerLost, WorkerProcess
from compress.measure.timing.worker_protocol import Order, Reply, WorkerSpec
from compress.model_info import VariantInfo

START_PATIENCE = 600.0
"""Seconds in which a model must have loaded, and again in which it must have warmed up."""
TURN_PATIENCE = 20.0
"""Seconds that any turn may take; slow ones may take `TURN_TIMES` what was foreseen."""
TURN_TIMES = 20.0
MOST_REPLACED = 1
"""Processes of a job that may end in mid-session and be replaced: one may be bad luck, a second one is the model."""
MOST_PARTS = 4
"""The model alone, end to end, by the device's clock, and for its energy."""
READ_AT_ONCE = 1 << 24
"""Bytes."""


@dataclass
class Worker:
    """A job with its present process and what all its processes have told."""

    job: Job
    link: WorkerProcess
    ready: Reply
    """Of the first process, which started alone."""
    start_seconds: float
    """From the launch of the first process until it was warm."""
    call_seconds: float
    process: int = 0
    lengths: tuple[int, ...] = ()
    model: list[Round] = field(default_factory=list)
    end_to_end: list[Round] = field(default_factory=list)
    device: list[Round] = field(default_factory=list)
    model_waited: list[Round] = field(default_factory=list)
    end_to_end_waited: list[Round] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    heard: list[Interference] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)
    metered: int = 0
    """Calls that took them."""
    unsteady: int = 0
    """Processes whose time was not yet steady when their turns began."""
    laps: dict[int, list[Reply]] = field(default_factory=lambda: defaultdict(list))
    """By the number of callers."""
    spent: float = 0.0
    died: tuple[str, ...] = ()
    """How processes ended that were replaced."""

    def keep(self, reply: Reply) -> None:
        """Take down one turn."""
        self.model.append(np.asarray(reply.model))
        self.model_waited.append(np.asarray(reply.model_waited))
        if reply.end_to_end:
            self.end_to_end.append(np.asarray(reply.end_to_end))
            self.end_to_end_waited.append(np.asarray(reply.end_to_end_waited))
        if reply.device:
            self.device.append(np.asarray(reply.device))
        self.processes.append(self.process)
        if reply.heard is not None:
            self.heard.append(reply.heard)
        if reply.joules is not None:
            self.joules.append(reply.joules)
            self.metered += reply.metered


class WorkerPool:
    """All workers of a session. Who fails gets a row in ``found`` and is asked no more."""

    def __init__(self, jobs: Sequence[Job], calls: Sequence[Call], cores: Cores | None, seed: int) -> None:
        self.jobs = jobs
        self.calls = tuple(calls)
        self.found: dict[str, Latency] = {}
        self.all: dict[str, Worker] = {}
        self._cores = cores
        self._seed = seed
        # One limit for all: what is free when nobody has started. Later it would be less by what the others hold.
        self._memory = memory_to_use()
        self._warm = Order(do="warm")
        """What a process that stands in for another warms up with."""
        self._vocabulary = shared_vocabulary(job.folder for job in jobs)
        self._stack = ExitStack()

    def __enter__(self) -> WorkerPool:
        """Nothing starts yet."""
        return self

    def __exit__(self, *ending: object) -> None:
        """End every process; at once where something went wrong."""
        self._stack.__exit__(*ending)  # type: ignore[arg-type]

    @property
    def members(self) -> dict[str, Worker]:
        """Those that have not failed."""
        return {key: member for key, member in self.all.items() if key not in self.found}

    def start(self, job: Job) -> None:
        """The first process of a job, alone, so that its load time is its own."""
        begin = time.perf_counter()
        with self._telling(job.key):
            warm_page_cache(job.folder, job.variant)
            link = self._stack.enter_context(WorkerProcess(job.place.threads))
            ready = link.ask(self._spec(job, link), START_PATIENCE)
            some = spaced(min(LEAST_CALLS, len(self.calls)), len(self.calls)) or [0]
            warm = link.ask(Order(do="warm", calls=tuple(some)), START_PATIENCE)
            took = time.perf_counter() - begin
            self.all[job.key] = Worker(job, link, ready, took, warm.call_seconds or 0.0, spent=took)

    def renew(self, keys: Iterable[str], warm: Order) -> None:
        """Fresh processes for these jobs: they start at once, in this order, and warm up one after another.

        All old ones end before a new one starts, so that no job is given the memory that its own has just left.
        """
        members = {key: self.all[key] for key in keys if key not in self.found}
        for member in members.values():
            member.link.hang_up()
        for member in members.values():
            member.link.__exit__(None, None, None)
        for key, member in members.items():
            with self._telling(key):
                member.link = self._stack.enter_context(WorkerProcess(member.job.place.threads))
                member.link.send(self._spec(member.job, member.link, member.ready.imports))
        for key, member in members.items():
            if key not in self.found:
                with self._telling(key):
                    self._began(member)
        self.warm(members, warm)

    def warm(self, keys: Iterable[str], order: Order) -> None:
        """Run the calls of the turns to come until they are steady."""
        self._warm = order
        for _, member, reply in self._each(keys, order, START_PATIENCE):
            member.call_seconds = reply.call_seconds or member.call_seconds
            member.lengths = reply.lengths
            member.unsteady += reply.steady is False

    def take_turns(self, keys: Sequence[str], order: Order, heard: Callable[[str], None]) -> None:
        """One turn each, in this order."""
        for key, member, reply in self._each(keys, order, self._patience(order)):
            member.keep(reply)
            heard(key)

    def take_load(self, keys: Sequence[str], order: Order) -> None:
        """One number of callers, one job after another."""
        for _, member, reply in self._each(keys, order, self._load_patience(order)):
            member.laps[order.callers].append(reply)

    def close(self) -> dict[str, Reply]:
        """What those that are left say at their end."""
        return {key: reply for key, _, reply in self._each(list(self.members), Order(do="close"), TURN_PATIENCE)}

    def _each(self, keys: Iterable[str], order: Order, patience: float) -> Iterator[tuple[str, Worker, Reply]]:
        for key in keys:
            if key in self.found:
                continue
            member = self.all[key]
            begin = time.perf_counter()
            with self._telling(key):
                reply = self._ask(member, order, patience)
                member.spent += time.perf_counter() - begin
                yield key, member, reply

    def _ask(self, member: Worker, order: Order, patience: float) -> Reply:
        """The reply; where the process ends meanwhile, that of another one in its place."""
        try:
            return member.link.ask(order, patience)
        except WorkerExited as end:
            self._replace(member, end)
        if order.do != "warm":
            member.link.ask(self._warm, START_PATIENCE)
        return member.link.ask(order, patience)

    def _began(self, member: Worker) -> None:
        """Wait until a fresh process is ready."""
        try:
            member.link.receive(START_PATIENCE)
            member.process += 1
        except WorkerExited as end:
            self._replace(member, end)

    def _replace(self, member: Worker, end: WorkerExited) -> None:
        """Another process for one that has ended; its end is the job's where that has happened too often."""
        if len(member.died) >= MOST_REPLACED:
            raise end
        member.died += (str(end),)
        member.link.__exit__(None, None, None)
        member.link = self._stack.enter_context(WorkerProcess(member.job.place.threads))
        member.link.ask(self._spec(member.job, member.link, member.ready.imports), START_PATIENCE)
        member.process += 1

    def _patience(self, order: Order) -> float:
        return max(TURN_PATIENCE, TURN_TIMES * (order.seconds + MOST_PARTS * len(order.calls) * self._slowest))

    def _load_patience(self, order: Order) -> float:
        seconds = lap_seconds(order.seconds, self._slowest)
        return TURN_PATIENCE + 10 * (seconds + order.callers * self._slowest)

    @property
    def _slowest(self) -> float:
        """Seconds of a call."""
        return max((member.call_seconds for member in self.members.values()), default=0.0)

    @contextmanager
    def _telling(self, key: str) -> Iterator[None]:
        """Write down how a job ended instead of ending the session."""
        try:
            yield
        except Unsupported as end:
            self.found[key] = Latency(status="not measured", reason=str(end))
        except WorkerLost as end:
            self.found[key] = Latency(status="failed", reason=str(end))

    def _spec(self, job: Job, link: WorkerProcess, imports: tuple[str, ...] = ()) -> WorkerSpec:
        on_cpu = job.place.device == "cpu"
        return WorkerSpec(
            folder=os.fspath(job.folder),
            variant=job.variant,
            device=job.place.device,
            threads=job.place.threads,
            cores=self._cores.own if self._cores else None,
            beside=self._cores.beside if self._cores else (),
            batch=job.batch,
            length=job.length,
            calls=self.calls,
            seed=self._seed,
            vocabulary=self._vocabulary,
            launched=link.launched,
            imports=imports,
            slowed=job.slowed,
            memory=self._memory if on_cpu else None,  # a CUDA context maps far more than it uses
        )


def warm_page_cache(model: Path, variant: VariantInfo | None = None) -> None:
    """Read a model's files once, so that the first load of each comes from the same place: the system's memory."""
    try:
        files = needed_files(model, variant)
    except (CompressError, OSError):  # what cannot be read is told by who opens it
        return
    for path in files:
        try:
            with path.open("rb") as opened:
                while opened.read(READ_AT_ONCE):
                    pass
        except OSError:
            continue
