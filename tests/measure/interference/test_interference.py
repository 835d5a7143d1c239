import sys

import numpy as np
import pytest

from compress.measure.interference.interference import (
    Counters,
    Interference,
    InterferenceMonitor,
    _throttled,
    aggregate,
    disturbances,
    uneven_laps,
    unsteady_starts,
    waited_share,
)
from compress.measure.timing.cpu_affinity import read_ticks, ticks
from compress.measure.timing.latency import Noise, Timing

STAT = "cpu  9 9 9\ncpu0 {} 0 10 100 0 0 0 {} 0 0\ncpu1 {} 0 10 100 0 0 0 0 0 0\nintr 5\n"


def timed(*medians: float, spread: float = 0.01) -> Timing:
    score = {"value": 1.0, "low": 0.9, "high": 1.1}
    return Timing.model_validate(
        {"p50": score, "p95": None, "p99": None, "spread": spread, "calls": 9, "round_medians": medians}
    )


def look(clock: float, processor: float, own: int, stolen: int, other: int, preempted: int = 0) -> Counters:
    return Counters(clock, processor, read_ticks(STAT.format(own, stolen, other)), preempted, None)


def test_what_others_took_is_what_the_worker_did_not(monkeypatch):
    listener = InterferenceMonitor(own=(0,), beside=((1,),))
    monkeypatch.setattr(
        InterferenceMonitor, "look", lambda _: look(12.0, 6.5, own=300, stolen=10, other=150, preempted=40)
    )
    heard = listener.heard(look(10.0, 5.0, own=100, stolen=0, other=50))
    assert heard.busy == pytest.approx(0.5)
    assert heard.stolen == pytest.approx(0.1)
    assert heard.beside == pytest.approx((1.0,))
    assert heard.preempted == 40
    noise = aggregate([heard, heard], own=1, beside=[1])
    assert noise is not None
    assert noise.other_load == pytest.approx(0.25)
    assert noise.stolen == pytest.approx(0.05)
    assert noise.beside == pytest.approx(0.5)
    assert noise.preempted == pytest.approx(20.0)
    assert noise.throttled is None


def test_shares_are_shares_also_where_ticks_round():
    noise = aggregate([Interference(elapsed=1.0, busy=-0.02, stolen=0.0, beside=(1.02,))], own=1, beside=[1])
    assert noise is not None
    assert noise.other_load == 0.0
    assert noise.beside == 1.0


def test_nothing_is_said_of_what_was_too_short_or_not_told():
    short = aggregate([Interference(elapsed=0.05, busy=0.05)], own=1)
    assert short is not None
    assert short.other_load is None
    assert aggregate([], own=1) is None
    unknown = aggregate([Interference(elapsed=5.0)], own=0)
    assert unknown == Noise()


def test_a_listener_on_unknown_cores_hears_nothing_of_them():
    listener = InterferenceMonitor(own=(4096,))
    heard = listener.heard(listener.look())
    assert heard.busy is None
    assert heard.stolen is None


@pytest.mark.skipif(sys.platform != "linux", reason="counters of Linux")
def test_a_listener_hears_this_machine():
    listener = InterferenceMonitor(own=(min(ticks()),))
    heard = listener.heard(listener.look())
    assert heard.busy is not None
    assert heard.preempted is not None


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (Noise(other_load=0.4), "other work took 40% of its cores"),
        (Noise(waited=0.38, preempted=139.2), "stood in line for a core for 38% of their time, put off it 139 times"),
        (Noise(waited=0.06), "stood in line for a core for 6% of their time"),
        (Noise(beside=0.97), "the cores beside were 97% busy"),
        (Noise(stolen=0.05), "the hypervisor took 5%"),
        (Noise(throttled=3), "held it up 3 times"),
    ],
)
def test_what_was_seen_is_named(noise, words):
    (said,) = disturbances(noise, timed(1.0, 1.0, 1.0))
    assert words in said


def test_a_quiet_machine_is_believed():
    quiet = Noise(other_load=0.02, waited=0.01, beside=0.1, stolen=0.0, preempted=9.0, throttled=0)
    assert disturbances(quiet, timed(1.0, 1.0)) == []
    assert disturbances(None, timed(1.0), None) == []


def test_waits_in_line_count_but_not_for_the_process_s_own_threads():
    calls = [np.array([1.0, 1.0, 4.0]), np.array([1.0, 1.0, 2.0])]
    neighbour = [np.array([0.0, 0.1, 3.0]), np.array([0.2, 0.0, 1.0])]
    assert waited_share(calls, neighbour) == pytest.approx(0.4)
    assert waited_share(calls, [np.full(3, 0.2)] * 2) == 0.0
    assert waited_share(calls, [np.array([])] * 2) is None
    assert waited_share([], []) is None


def test_spread_speaks_for_itself_and_all_is_told():
    found = disturbances(Noise(other_load=0.4), timed(1.0, spread=0.25))
    assert found[0] == "the rounds' medians spread by 25%, more than 10%"
    assert len(found) == 2


def test_laps_under_load_are_judged_apart():
    quiet = Interference(elapsed=1.0, busy=0.0, stolen=0.0, beside=(0.0,))
    assert uneven_laps([quiet, quiet], [100.0, 95.0], 1, [1]) == []
    (said,) = uneven_laps([quiet, None], [100.0, 80.0], 1, [1])
    assert said == "its laps differ by 20% in rows a second, more than 10%"
    (said,) = uneven_laps([quiet, Interference(elapsed=1.0, busy=1.0, beside=(0.0,))], [100.0, 100.0], 1, [1])
    assert said == "other work took 50% of its cores"


def test_warming_up_that_did_not_end_is_told():
    assert unsteady_starts(0, 1) == unsteady_starts(1, 10) == []
    assert unsteady_starts(1, 1) == ["warming up did not get its time steady"]
    assert unsteady_starts(3, 10) == ["warming up did not get its time steady in 3 of 10 processes"]


def test_an_accelerator_that_others_used_or_that_was_held_down_is_named():
    turns = [
        Interference(elapsed=1.0, device_load=share, device_held=held) for share, held in ((0.3, ()), (0.1, ("heat",)))
    ]
    noise = aggregate(turns, own=0)
    assert noise == Noise(device_load=0.2, device_throttled=1, device_held_by=("heat",))
    assert disturbances(noise, timed(1.0, 1.0)) == [
        "other work took 20% of the accelerator",
        "heat held the accelerator's clock down in 1 turns",
    ]


def test_quotas_of_all_groups_count(tmp_path):
    (tmp_path / "cgroup").write_text("0::/box/inner\n")
    for folder, count in (("box", 2), ("box/inner", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "cpu.stat").write_text(f"usage_usec 5\nnr_throttled {count}\n")
    assert _throttled(tmp_path, tmp_path / "cgroup") == 5
    assert _throttled(tmp_path / "none", tmp_path / "none") is None
