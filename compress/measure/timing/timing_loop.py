"""The timing loop inside a worker: calls one after another, passes over calls, and closed loops of several callers."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Self

from compress.errors import ModelError
from compress.measure.interference import InterferenceMonitor
from compress.measure.resources.energy import EnergyMeter
from compress.measure.timing.latency import CallTimes
from compress.measure.timing.schedule import LAP_CALLS, MAX_LAP_SECONDS
from compress.measure.timing.worker_protocol import Command, Reply

RunCall = Callable[[int], object]
"""Runs the call with this number; returns when its output is on the host."""

WARM_UP_SECONDS = 4.0
"""Warm-up ends here even where passes still get faster."""
WARM_UP_PASSES = 3
STEADY = 0.05
"""Warm-up also ends when a pass differs by less than this from the one before."""
TASKS = Path("/proc/self/task")
MAX_LINE = 96
"""Bytes of a thread's statistics."""
UNTIMED_CALLS = 2
"""Calls at the start of a turn that are not timed: they reload the model into the caches that others have used."""


class RunQueueWait(ExitStack):
    """The waits of all threads that exist when it is entered; `counts` is whether the system reports them at all.

    Linux counts for every thread the time in which it was runnable and did not run (the second number of its
    schedstat). A call's time without the longest of these waits is what it would have taken with its cores to itself,
    apart from what the other processes left in the caches. Ratios rest on it: between two models of different speed a
    busy neighbour would otherwise favour the one whose calls fit between two of its turns.
    """

    def __enter__(self) -> Self:
        """Open the counters; leaving it closes them."""
        self._counters: list[int] = []
        with suppress(OSError):
            for thread in TASKS.iterdir():
                with suppress(OSError):  # a thread may have ended meanwhile
                    self._counters.append(os.open(thread / "schedstat", os.O_RDONLY))
                    self.callback(os.close, self._counters[-1])
        # A kernel without these statistics shows zeros, also for the thread that is running now.
        self.counts = any(_read(counter)[0] for counter in self._counters)
        return self

    def read(self) -> list[int]:
        """Return the nanoseconds that each thread has waited so far."""
        return [_read(counter)[1] for counter in self._counters]

    def since(self, before: list[int]) -> float:
        """Return the milliseconds that the thread that waited longest has waited since ``before``."""
        waits = (after - early for early, after in zip(before, self.read(), strict=True))
        return max(0, *waits) / 1e6 if self._counters else 0.0


@dataclass(frozen=True)
class TimedCalls:
    """The ways in which one model is timed; None where one does not apply."""

    model: RunCall
    end_to_end: RunCall | None = None
    device: Callable[[int], float] | None = None
    """Returns milliseconds by the device's own clock."""


def _read(counter: int) -> tuple[int, int]:
    """Return the nanoseconds that a thread has run and has waited; zeros for a thread that has ended."""
    try:
        ran, waited, *_ = os.pread(counter, MAX_LINE, 0).split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return 0, 0


def passes(calls: Sequence[int], seconds: float) -> Iterator[int]:
    """Yield full passes over ``calls`` until ``seconds`` are over, at least one: each call comes equally often."""
    end = time.perf_counter() + seconds
    yield from calls
    while time.perf_counter() < end:
        yield from calls


def time_passes(run: RunCall, calls: Sequence[int], seconds: float = 0.0) -> CallTimes:
    """Time full passes over ``calls``; a call returns host arrays, so nothing is still running when it returns."""
    total: list[float] = []
    waits: list[float] = []
    with RunQueueWait() as queue:
        for call in passes(calls, seconds):
            before = queue.read()
            start = time.perf_counter()
            run(call)
            total.append((time.perf_counter() - start) * 1e3)
            waits.append(queue.since(before))
        return CallTimes(total=tuple(total), waits=tuple(waits) if queue.counts else ())


def measure_energy(run: RunCall, calls: Sequence[int], seconds: float, meter: EnergyMeter) -> tuple[float | None, int]:
    """Return the joules of passes without any timing, and their number of calls; None where they cannot be read."""
    before, done = meter.read(), 0
    if before is None:
        return None, 0
    for call in passes(calls, seconds):
        run(call)
        done += 1
    after = meter.read()
    return (None if after is None or after < before else after - before), done  # a counter restarts at its range


def warm_up(run: RunCall, calls: Sequence[int]) -> tuple[float, bool]:
    """Run until the time of a pass is steady; return the seconds of a call, and whether it became steady."""
    end = time.perf_counter() + WARM_UP_SECONDS
    milliseconds = [sum(time_passes(run, calls).total) for _ in range(2)]
    while time.perf_counter() < end and (len(milliseconds) < WARM_UP_PASSES or not _steady(milliseconds)):
        milliseconds.append(sum(time_passes(run, calls).total))
    return median(milliseconds[-2:]) / len(calls) / 1e3, _steady(milliseconds)


def _steady(milliseconds: Sequence[float]) -> bool:
    return abs(milliseconds[-1] / milliseconds[-2] - 1.0) <= STEADY


def take_turn(timed: TimedCalls, command: Command, monitor: InterferenceMonitor, meter: EnergyMeter) -> Reply:
    """Run one turn: the model alone, then from text to answer where there are texts, then by the device's clock.

    Energy is measured in a part of its own where there is a meter: the timing's own energy is not the model's.
    """
    gc.collect()
    parts = (timed.model, timed.end_to_end, timed.device, meter.counter)
    seconds, before = command.seconds / sum(part is not None for part in parts), monitor.read()
    for call in command.calls[-UNTIMED_CALLS:]:
        timed.model(call)
    alone = time_passes(timed.model, command.calls, seconds)
    full = time_passes(timed.end_to_end, command.calls, seconds) if timed.end_to_end else CallTimes()
    device = tuple(timed.device(call) for call in passes(command.calls, seconds)) if timed.device else ()
    joules, calls = measure_energy(timed.model, command.calls, seconds, meter)
    return Reply(
        model=alone,
        end_to_end=full,
        device=CallTimes(total=device),
        joules=joules,
        energy_calls=calls,
        interference=monitor.since(before),
    )


def closed_loop(run: RunCall, command: Command, monitor: InterferenceMonitor) -> Reply:
    """Run ``callers`` threads, each of which calls again as soon as its call has returned.

    They run until the seconds are over and `LAP_CALLS` calls have finished, but `MAX_LAP_SECONDS` at most.
    """
    gc.collect()
    before = monitor.read()
    ready, spans = threading.Barrier(command.callers), list[tuple[float, float]]()

    def caller(number: int) -> None:
        ready.wait()
        start = time.perf_counter()
        for call in islice(cycle(command.calls), number, None):
            called = time.perf_counter()
            run(call)
            returned = time.perf_counter()
            spans.append((called, returned))
            elapsed, enough = returned - start, len(spans) >= LAP_CALLS
            if elapsed >= command.seconds and (enough or elapsed >= MAX_LAP_SECONDS):
                return

    with ThreadPoolExecutor(command.callers) as pool:
        try:
            futures = [pool.submit(caller, number) for number in range(command.callers)]
        except RuntimeError as error:  # no further thread: the others would wait for it forever
            ready.abort()
            raise ModelError(f"{command.callers} callers at once cannot be started here: {error}.") from error
    for future in futures:
        future.result()
    waits = tuple((returned - called) * 1e3 for called, returned in spans)
    seconds = max(returned for _, returned in spans) - min(called for called, _ in spans)
    return Reply(waits=waits, seconds=seconds, interference=monitor.since(before))


def with_delay(run: RunCall, share: float) -> RunCall:
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
