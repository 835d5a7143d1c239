"""The timing loop inside a worker: calls one after another, passes over calls, and closed loops of several callers."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import median
from typing import TypeVar

from compress.errors import ModelError
from compress.measure.interference.monitor import InterferenceMonitor
from compress.measure.interference.run_queue_wait import RunQueueWait
from compress.measure.resources.energy import EnergyMeter
from compress.measure.timing.schedule import MAX_LAP_SECONDS
from compress.measure.timing.worker_protocol import Command, Reply

Run = Callable[[int], object]
"""Runs the call with this number; returns when its output is on the host."""
Output = TypeVar("Output")

WARM_UP_SECONDS = 4.0
"""Warm-up ends here even where passes still get faster."""
WARM_UP_PASSES = 3
STEADY = 0.05
"""Warm-up also ends when a pass differs by less than this from the one before."""
CALLERS_TIMEOUT = 60.0
"""Seconds in which all callers must have started."""
UNTIMED_CALLS = 2
"""Calls at the start of a turn that are not timed: they reload the model into the caches that others have used."""


@dataclass(frozen=True)
class TimedCalls:
    """The ways in which one model is timed; None where one does not apply."""

    model: Run
    end_to_end: Run | None = None
    device: Callable[[int], float] | None = None
    """Returns milliseconds by the device's own clock."""

    @property
    def parts(self) -> int:
        """How many share the seconds of a turn."""
        return 1 + (self.end_to_end is not None) + (self.device is not None)


@dataclass(frozen=True)
class Times:
    """Milliseconds of calls in their order."""

    total: tuple[float, ...] = ()
    waits: tuple[float, ...] = ()
    """What the process waited for a core during each; empty where the system does not report it."""


def time_passes(run: Run, calls: Sequence[int], seconds: float = 0.0) -> Times:
    """Time full passes over ``calls`` until ``seconds`` are over, at least one: all calls are timed equally often.

    A call returns host arrays, so nothing is still running when it returns.
    """
    total: list[float] = []
    waits: list[float] = []
    with RunQueueWait() as queue:
        end = time.perf_counter() + seconds
        while not total or time.perf_counter() < end:
            for call in calls:
                before = queue.read()
                start = time.perf_counter()
                run(call)
                total.append((time.perf_counter() - start) * 1e3)
                waits.append(queue.since(before))
        return Times(tuple(total), tuple(waits) if queue.counts else ())


def time_on_device(clock: Callable[[int], float], calls: Sequence[int], seconds: float) -> tuple[float, ...]:
    """Time full passes by the device's own clock."""
    total: list[float] = []
    end = time.perf_counter() + seconds
    while not total or time.perf_counter() < end:
        total += [clock(call) for call in calls]
    return tuple(total)


def measure_energy(run: Run, calls: Sequence[int], seconds: float, meter: EnergyMeter) -> tuple[float | None, int]:
    """Return the joules of passes without any timing, and their number of calls; (None, 0) without a meter."""
    before = meter.read()
    if before is None:
        return None, 0
    count, end = 0, time.perf_counter() + seconds
    while not count or time.perf_counter() < end:
        for call in calls:
            run(call)
        count += len(calls)
    after = meter.read()
    return (None if after is None else after - before), count


def warm_up(run: Run, calls: Sequence[int]) -> tuple[float, bool]:
    """Run until the time of a pass is steady; return the seconds of a call, and whether it became steady."""
    end = time.perf_counter() + WARM_UP_SECONDS
    passes = [sum(time_passes(run, calls).total) for _ in range(2)]
    while time.perf_counter() < end and (len(passes) < WARM_UP_PASSES or not _steady(passes)):
        passes.append(sum(time_passes(run, calls).total))
    return median(passes[-2:]) / len(calls) / 1e3, _steady(passes)


def _steady(passes: Sequence[float]) -> bool:
    return abs(passes[-1] / passes[-2] - 1.0) <= STEADY


def take_turn(timed: TimedCalls, command: Command, monitor: InterferenceMonitor, meter: EnergyMeter) -> Reply:
    """Run one turn: the model alone, then from text to answer where there are texts, then by the device's clock.

    Energy is measured in a part of its own where there is a meter: the timing's own energy is not the model's.
    """
    gc.collect()
    seconds, before = command.seconds / (timed.parts + (meter.counter is not None)), monitor.read()
    for call in command.calls[-UNTIMED_CALLS:]:
        timed.model(call)
    alone = time_passes(timed.model, command.calls, seconds)
    full = Times() if timed.end_to_end is None else time_passes(timed.end_to_end, command.calls, seconds)
    device = () if timed.device is None else time_on_device(timed.device, command.calls, seconds)
    joules, calls = measure_energy(timed.model, command.calls, seconds, meter)
    return Reply(
        model=alone.total,
        model_waits=alone.waits,
        end_to_end=full.total,
        end_to_end_waits=full.waits,
        device=device,
        joules=joules,
        energy_calls=calls,
        interference=monitor.since(before),
    )


def closed_loop(run: Run, command: Command, monitor: InterferenceMonitor) -> Reply:
    """Run ``callers`` threads, each of which calls again as soon as its call has returned.

    They run until the seconds are over and ``least`` calls have finished, but `MAX_LAP_SECONDS` at most.
    """
    gc.collect()
    before = monitor.read()
    ready = threading.Barrier(command.callers, timeout=CALLERS_TIMEOUT)
    finished = FinishedCalls(command)

    def caller(number: int) -> tuple[list[float], float, float]:
        ready.wait()
        start = time.perf_counter()
        waits: list[float] = []
        for call in islice(cycle(command.calls), number, None):
            called = time.perf_counter()
            run(call)
            returned = time.perf_counter()
            waits.append((returned - called) * 1e3)
            if finished.enough(returned - start):
                break
        return waits, start, time.perf_counter()

    results = _run_callers(caller, command.callers, ready)
    seconds = max(end for _, _, end in results) - min(start for _, start, _ in results)
    waits = tuple(wait for waits, _, _ in results for wait in waits)
    return Reply(waits=waits, seconds=seconds, interference=monitor.since(before))


@dataclass
class FinishedCalls:
    """Counts the calls that all callers together have finished."""

    command: Command
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enough(self, elapsed: float) -> bool:
        """Count one more call; return whether it may be the caller's last, ``elapsed`` seconds after its start."""
        with self.lock:
            self.count += 1
            finished = self.count >= self.command.least
        return elapsed >= self.command.seconds and (finished or elapsed >= MAX_LAP_SECONDS)


def _run_callers(caller: Callable[[int], Output], callers: int, ready: threading.Barrier) -> list[Output]:
    with ThreadPoolExecutor(callers) as pool:
        try:
            futures = [pool.submit(caller, number) for number in range(callers)]
        except RuntimeError as error:  # no further thread: the others would wait for it forever
            ready.abort()
            raise ModelError(f"{callers} callers at once cannot be started on this machine: {error}.") from error
        try:
            return [future.result() for future in futures]
        except threading.BrokenBarrierError as error:
            raise ModelError(f"{callers} callers were not ready within {CALLERS_TIMEOUT:.0f} s.") from error


def with_delay(run: Run, share: float) -> Run:
    """Return ``run`` followed by a wait of ``share`` of its time; a busy wait, so that no core goes to sleep.

    The wait is by the CPU clock of the calling thread, which stops while others have its core: otherwise a busy
    neighbour would lengthen the wait twice.
    """
    if not share:
        return run

    def delayed(call: int) -> object:
        start = time.thread_time()
        output = run(call)
        end = start + (time.thread_time() - start) * (1.0 + share)
        while time.thread_time() < end:
            pass
        return output

    return delayed
