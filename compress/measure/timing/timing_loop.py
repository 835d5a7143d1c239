"""The timing itself, inside a worker: calls one after another, passes over calls, and callers that ask at once."""

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
from compress.measure.interference.interference import InterferenceMonitor
from compress.measure.interference.run_queue_wait import RunQueueWait
from compress.measure.resources.energy import EnergyMeter
from compress.measure.timing.schedule import LONGEST_LOAD
from compress.measure.timing.worker_protocol import Order, Reply

Run = Callable[[int], object]
"""Answers the call with this number; returns when the answer is on the host."""
Told = TypeVar("Told")

WARM_SECONDS = 4.0
"""Warm-up ends here even where passes still get faster."""
WARM_PASSES = 3
STEADY = 0.05
"""Warm-up also ends when a pass differs by less than this from the one before."""
CALLERS_PATIENCE = 60.0
"""Seconds in which all callers must have been started."""
FIRST_CALLS = 2
"""Calls at the start of a turn that are not timed: they bring the model back into the caches that others used."""


@dataclass(frozen=True)
class TimedCalls:
    """The ways in which one model is timed; those that it does not have are None."""

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
    """Milliseconds of calls in the order in which they were made."""

    whole: tuple[float, ...] = ()
    waited: tuple[float, ...] = ()
    """What of each the process stood in line for a core; empty where the system does not tell."""


def timed(run: Run, calls: Sequence[int], seconds: float = 0.0) -> Times:
    """Whole passes over ``calls`` until ``seconds`` are over, one at least: each call counts as often as any other.

    A call returns host arrays, so nothing is left running when it returns.
    """
    whole: list[float] = []
    waited: list[float] = []
    with RunQueueWait() as queue:
        end = time.perf_counter() + seconds
        while not whole or time.perf_counter() < end:
            for call in calls:
                before = queue.read()
                start = time.perf_counter()
                run(call)
                whole.append((time.perf_counter() - start) * 1e3)
                waited.append(queue.since(before))
        return Times(tuple(whole), tuple(waited) if queue.counts else ())


def by_device(clock: Callable[[int], float], calls: Sequence[int], seconds: float) -> tuple[float, ...]:
    """The same by the device's own clock."""
    whole: list[float] = []
    end = time.perf_counter() + seconds
    while not whole or time.perf_counter() < end:
        whole += [clock(call) for call in calls]
    return tuple(whole)


def measure_energy(run: Run, calls: Sequence[int], seconds: float, meter: EnergyMeter) -> tuple[float | None, int]:
    """The joules of passes that consist of nothing but calls, and the number of calls; no joules without a meter."""
    before = meter.read()
    if before is None:
        return None, 0
    made, end = 0, time.perf_counter() + seconds
    while not made or time.perf_counter() < end:
        for call in calls:
            run(call)
        made += len(calls)
    after = meter.read()
    return (None if after is None else after - before), made


def warm_up(run: Run, calls: Sequence[int]) -> tuple[float, bool]:
    """Run until the time of a pass is steady; returns the seconds of a call, and whether it became steady."""
    end = time.perf_counter() + WARM_SECONDS
    seen = [sum(timed(run, calls).whole) for _ in range(2)]
    while time.perf_counter() < end and (len(seen) < WARM_PASSES or not _steady(seen)):
        seen.append(sum(timed(run, calls).whole))
    return median(seen[-2:]) / len(calls) / 1e3, _steady(seen)


def _steady(seen: Sequence[float]) -> bool:
    return abs(seen[-1] / seen[-2] - 1.0) <= STEADY


def take_turn(ways: TimedCalls, order: Order, listener: InterferenceMonitor, meter: EnergyMeter) -> Reply:
    """One turn: the model alone, then from text to answer where there are texts, then by the device's clock.

    Energy has a part of its own where there is a meter: what the timing itself takes is no part of the model's.
    """
    gc.collect()
    seconds, before = order.seconds / (ways.parts + (meter.counter is not None)), listener.look()
    for call in order.calls[-FIRST_CALLS:]:
        ways.model(call)
    alone = timed(ways.model, order.calls, seconds)
    full = Times() if ways.end_to_end is None else timed(ways.end_to_end, order.calls, seconds)
    device = () if ways.device is None else by_device(ways.device, order.calls, seconds)
    joules, calls = measure_energy(ways.model, order.calls, seconds, meter)
    return Reply(
        model=alone.whole,
        model_waited=alone.waited,
        end_to_end=full.whole,
        end_to_end_waited=full.waited,
        device=device,
        joules=joules,
        metered=calls,
        heard=listener.heard(before),
    )


def closed_loop(run: Run, order: Order, listener: InterferenceMonitor) -> Reply:
    """A closed loop: ``callers`` threads, each of which asks again as soon as it has its answer.

    It goes on until the seconds are over and ``least`` calls are answered; to `LONGEST_LOAD` at most, if they are not.
    """
    gc.collect()
    before = listener.look()
    ready = threading.Barrier(order.callers, timeout=CALLERS_PATIENCE)
    answers = Answers(order)

    def caller(number: int) -> tuple[list[float], float, float]:
        ready.wait()
        start = time.perf_counter()
        waits: list[float] = []
        for call in islice(cycle(order.calls), number, None):
            asked = time.perf_counter()
            run(call)
            answered = time.perf_counter()
            waits.append((answered - asked) * 1e3)
            if answers.enough(answered - start):
                break
        return waits, start, time.perf_counter()

    told = _all_at_once(caller, order.callers, ready)
    seconds = max(end for _, _, end in told) - min(start for _, start, _ in told)
    waits = tuple(wait for waits, _, _ in told for wait in waits)
    return Reply(waits=waits, seconds=seconds, heard=listener.heard(before))


@dataclass
class Answers:
    """Counts the answers that all callers have got together."""

    order: Order
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enough(self, elapsed: float) -> bool:
        """Take down one more answer; whether it may be the caller's last one, ``elapsed`` seconds after its start."""
        with self.lock:
            self.count += 1
            answered = self.count >= self.order.least
        return elapsed >= self.order.seconds and (answered or elapsed >= LONGEST_LOAD)


def _all_at_once(caller: Callable[[int], Told], callers: int, ready: threading.Barrier) -> list[Told]:
    with ThreadPoolExecutor(callers) as pool:
        try:
            asked = [pool.submit(caller, number) for number in range(callers)]
        except RuntimeError as error:  # no further thread: those that wait for it would do so for ever
            ready.abort()
            raise ModelError(f"{callers} callers at once cannot be started on this machine: {error}.") from error
        try:
            return [one.result() for one in asked]
        except threading.BrokenBarrierError as error:
            raise ModelError(f"{callers} callers were not ready within {CALLERS_PATIENCE:.0f} s.") from error


def with_delay(run: Run, share: float) -> Run:
    """The same answers, each followed by a wait of ``share`` of its time; busy, so that no core goes to sleep.

    By the clock of the calling thread, which stands still while others have its core: else a busy neighbour would
    lengthen the wait twice.
    """
    if not share:
        return run

    def waiting(call: int) -> object:
        start = time.thread_time()
        answer = run(call)
        end = start + (time.thread_time() - start) * (1.0 + share)
        while time.thread_time() < end:
            pass
        return answer

    return waiting
