import sys

import pytest

from compress.measure.interference import (
    Counters,
    Interference,
    InterferenceMonitor,
    _quota_stops,
    aggregate,
    instabilities,
    lap_instabilities,
    wait_share,
    warm_up_instabilities,
)
from compress.measure.timing.latency import CallTimes, Noise, Timing
from compress.measure.timing.process_limits import Cores, core_seconds, parse_core_seconds

CORES = Cores((0,), ((1,),))
STAT = "cpu  9 9 9\ncpu0 {} 0 10 100 0 0 0 {} 0 0\ncpu1 {} 0 10 100 0 0 0 0 0 0\nintr 5\n"


def timed(*medians: float, spread: float = 0.01) -> Timing:
    score = {"value": 1.0, "low": 0.9, "high": 1.1}
    return Timing.model_validate(
        {"p50": score, "p95": None, "p99": None, "spread": spread, "calls": 9, "round_medians": medians}
    )


def counters(clock: float, processor: float, own: int, stolen: int, other: int, preempted: int = 0) -> Counters:
    return Counters(clock, processor, parse_core_seconds(STAT.format(own, stolen, other)), preempted, None)


def test_other_load_excludes_the_workers_own_time(monkeypatch):
    monitor = InterferenceMonitor(CORES)
    monkeypatch.setattr(
        InterferenceMonitor, "read", lambda _: counters(12.0, 6.5, own=300, stolen=10, other=150, preempted=40)
    )
    turn = monitor.since(counters(10.0, 5.0, own=100, stolen=0, other=50))
    assert turn.busy == pytest.approx(0.5)
    assert turn.stolen == pytest.approx(0.1)
    assert turn.neighbours == pytest.approx((1.0,))
    assert turn.preempted == 40
    noise = aggregate([turn, turn], CORES)
    assert noise is not None
    assert noise.other_load == pytest.approx(0.25)
    assert noise.stolen == pytest.approx(0.05)
    assert noise.beside == pytest.approx(0.5)
    assert noise.preempted == pytest.approx(20.0)
    assert noise.throttled is None


def test_shares_are_clipped_to_0_and_1():
    noise = aggregate([Interference(elapsed=1.0, busy=-0.02, stolen=0.0, neighbours=(1.02,))], CORES)
    assert noise is not None
    assert noise.other_load == 0.0
    assert noise.beside == 1.0


def test_short_or_unknown_interference_is_none():
    short = aggregate([Interference(elapsed=0.05, busy=0.05)], CORES)
    assert short is not None
    assert short.other_load is None
    assert aggregate([], CORES) is None
    unknown = aggregate([Interference(elapsed=5.0)], Cores())
    assert unknown == Noise()


def test_a_turn_in_which_the_counters_could_not_be_read_ends_nothing():
    turns = [Interference(elapsed=1.0, neighbours=(0.5,)), Interference(elapsed=1.0)]
    assert aggregate(turns, CORES).beside == pytest.approx(aggregate(turns[:1], CORES).beside)


def test_monitor_of_unknown_cores_reports_none():
    monitor = InterferenceMonitor(Cores((4096,)))
    turn = monitor.since(monitor.read())
    assert turn.busy is None
    assert turn.stolen is None


@pytest.mark.skipif(sys.platform != "linux", reason="counters of Linux")
def test_monitor_reads_this_machine():
    monitor = InterferenceMonitor(Cores((min(core_seconds()),)))
    turn = monitor.since(monitor.read())
    assert turn.busy is not None
    assert turn.preempted is not None


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (Noise(other_load=0.4), "other work used 40% of its cores"),
        (Noise(waited=0.38, preempted=139.2), "waited for a CPU core 38% of the time (139 preemptions/s)"),
        (Noise(waited=0.06), "waited for a CPU core 6% of the time"),
        (Noise(beside=0.97), "the other cores were 97% busy"),
        (Noise(stolen=0.05), "the hypervisor took 5%"),
        (Noise(throttled=3), "throttled it 3 times"),
    ],
)
def test_instabilities_are_described(noise, words):
    (reason,) = instabilities(noise, timed(1.0, 1.0, 1.0))
    assert words in reason


def test_quiet_machine_is_stable():
    quiet = Noise(other_load=0.02, waited=0.01, beside=0.1, stolen=0.0, preempted=9.0, throttled=0)
    assert instabilities(quiet, timed(1.0, 1.0)) == []
    assert instabilities(None, timed(1.0), None) == []


def test_short_waits_of_own_threads_are_ignored():
    first = CallTimes(total=(1.0, 1.0, 4.0), waits=(0.0, 0.1, 3.0))
    second = CallTimes(total=(1.0, 1.0, 2.0), waits=(0.2, 0.0, 1.0))
    assert wait_share([first, second, CallTimes()]) == pytest.approx(0.4)
    assert wait_share([CallTimes(total=(1.0,) * 3, waits=(0.2,) * 3)]) == 0.0
    assert wait_share([first, CallTimes(total=(1.0,))]) is None
    assert wait_share([]) is None


def test_spread_and_load_are_both_reported():
    result = instabilities(Noise(other_load=0.4), timed(1.0, spread=0.25))
    assert result[0] == "the rounds' medians spread by 25%, more than 10%"
    assert len(result) == 2


def test_laps_under_load_are_checked():
    quiet = Interference(elapsed=1.0, busy=0.0, stolen=0.0, neighbours=(0.0,))
    assert lap_instabilities([quiet, quiet], [100.0, 95.0], CORES) == []
    (reason,) = lap_instabilities([quiet, quiet], [100.0, 80.0], CORES)
    assert reason == "its laps differ by 20% in rows a second, more than 10%"
    (reason,) = lap_instabilities(
        [quiet, Interference(elapsed=1.0, busy=1.0, neighbours=(0.0,))], [100.0, 100.0], CORES
    )
    assert reason == "other work used 50% of its cores"


def test_unsteady_warm_up_is_reported():
    assert warm_up_instabilities(0, 1) == warm_up_instabilities(1, 10) == []
    assert warm_up_instabilities(1, 1) == ["call times were not steady after warm-up"]
    assert warm_up_instabilities(3, 10) == ["call times were not steady after warm-up in 3 of 10 processes"]


def test_load_and_throttling_of_the_accelerator_are_reported():
    turns = [
        Interference(elapsed=1.0, device_load=share, device_held=held) for share, held in ((0.3, ()), (0.1, ("heat",)))
    ]
    noise = aggregate(turns, Cores())
    assert noise == Noise(device_load=0.2, device_throttled=1, device_held_by=("heat",))
    assert instabilities(noise, timed(1.0, 1.0)) == [
        "other work used 20% of the accelerator",
        "heat limited the accelerator's clock in 1 turns",
    ]


def test_quotas_of_all_groups_count(tmp_path):
    (tmp_path / "cgroup").write_text("0::/box/inner\n")
    for folder, count in (("box", 2), ("box/inner", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "cpu.stat").write_text(f"usage_usec 5\nnr_throttled {count}\n")
    assert _quota_stops(tmp_path, tmp_path / "cgroup") == [2, 3]
    assert _quota_stops(tmp_path / "none", tmp_path / "none") == []
