"""What a turn consists of; nothing asserted depends on how fast this machine is."""

import threading
from itertools import count

import pytest

from compress.errors import ModelError
from compress.measure.interference import InterferenceMonitor
from compress.measure.resources.energy import EnergyMeter
from compress.measure.timing import timing_loop
from compress.measure.timing.latency import CallTimes
from compress.measure.timing.process_limits import Cores
from compress.measure.timing.timing_loop import TimedCalls, closed_loop, measure_energy, take_turn, time_passes, warm_up
from compress.measure.timing.worker_protocol import Command

NOBODY = InterferenceMonitor(Cores())
NO_METER = EnergyMeter("not measured: none")


def order(**seen) -> Command:
    return Command(do="load", **({"calls": (0, 1), "seconds": 0.0} | seen))


def test_passes_are_complete_and_at_least_one():
    seen: list[int] = []
    assert len(time_passes(seen.append, [3, 4]).total) == 2
    assert len(time_passes(seen.append, [3, 4], 0.01).total) % 2 == 0
    assert seen[:4] == [3, 4, 3, 4]


def test_counters_are_opened_once_for_many_passes(monkeypatch):
    opened = []
    entered = timing_loop.RunQueueWait.__enter__
    monkeypatch.setattr(timing_loop.RunQueueWait, "__enter__", lambda self: opened.append(1) or entered(self))
    assert len(time_passes(lambda call: None, [0], 0.02).total) > 1
    assert len(opened) == 1


def test_energy_covers_only_calls():
    during: list[str] = []
    joules = count(step=2.0)
    meter = EnergyMeter("a meter", lambda: during.append("meter") or next(joules))
    assert measure_energy(lambda call: during.append("call"), [0, 1], 0.0, meter) == (2.0, 2)
    assert during == ["meter", "call", "call", "meter"]
    assert measure_energy(lambda call: during.append("call"), [0, 1], 0.0, NO_METER) == (None, 0)
    assert len(during) == 4
    joules = count(9.0, -1.0)
    assert measure_energy(lambda call: None, [0, 1], 0.0, meter) == (None, 2)  # the counter has restarted


@pytest.mark.slow
def test_turn_reports_its_energy_calls():
    joules = count(step=0.5)
    order = Command(do="turn", calls=(0, 1, 2))
    result = take_turn(TimedCalls(lambda call: None), order, NOBODY, EnergyMeter("a meter", lambda: next(joules)))
    assert (result.joules, result.energy_calls) == (0.5, 3)
    assert len(result.model.total) == 3
    assert take_turn(TimedCalls(lambda call: None), order, NOBODY, NO_METER).joules is None


def test_warm_up_reports_whether_it_became_steady(monkeypatch):
    monkeypatch.setattr(timing_loop, "WARM_UP_SECONDS", 0.0)
    for milliseconds, steady in (([1.0, 9.0], False), ([4.0, 4.1], True)):
        passes = iter(milliseconds)
        monkeypatch.setattr(
            timing_loop, "time_passes", lambda run, calls, passes=passes: CallTimes(total=(next(passes),))
        )
        seconds, result = warm_up(lambda call: None, [0])
        assert result is steady
        assert seconds == pytest.approx(sum(milliseconds) / 2e3)


def test_closed_loop_runs_until_enough_calls_finished():
    seen: list[int] = []
    result = closed_loop(seen.append, order(callers=3), NOBODY)
    assert len(result.waits) == len(seen) >= 10
    assert result.interference is not None
    assert result.seconds is not None


def test_closed_loop_has_a_time_limit(monkeypatch):
    monkeypatch.setattr(timing_loop, "MAX_LAP_SECONDS", 0.0)
    assert len(closed_loop(lambda call: None, order(callers=1), NOBODY).waits) == 1


def test_failing_caller_does_not_block_the_others(monkeypatch):
    started = threading.Thread.start
    left = count(2, step=-1)

    def start(self):
        if next(left) <= 0:
            raise RuntimeError("can't start new thread")
        started(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(ModelError, match=r"3 callers at once cannot be started.*can't start new thread"):
        closed_loop(lambda call: None, order(callers=3), NOBODY)
