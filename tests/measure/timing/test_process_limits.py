import subprocess
import sys
import time
from pathlib import Path

import pytest

from compress.measure.timing import timing_loop
from compress.measure.timing.process_limits import (
    available_memory,
    container_memory,
    least_loaded,
    neighbour_groups,
    parse_core_seconds,
    peak_memory,
    resident_memory,
)
from compress.measure.timing.timing_loop import RunQueueWait, time_passes

PAIRED = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"}


def test_physical_cores_come_before_their_second_threads():
    assert least_loaded(2, range(8), PAIRED, {}) == (6, 7)
    assert least_loaded(4, range(8), PAIRED, {}) == (4, 5, 6, 7)
    assert least_loaded(5, range(8), PAIRED, {}) == (3, 4, 5, 6, 7)


def test_only_allowed_cores_are_used():
    assert least_loaded(2, [1, 5], PAIRED, {}) == (1, 5)
    assert least_loaded(1, [0, 2], {0: "0", 2: "2"}, {}) == (2,)


def test_busy_cores_are_avoided():
    assert least_loaded(1, range(8), PAIRED, {7: 90.0}) == (6,)
    assert least_loaded(1, range(8), PAIRED, {3: 90.0}) == (6,)  # its other hardware thread is as good as busy
    assert least_loaded(2, [0, 1], {0: "0", 1: "1"}, {1: 100.0}) == (0, 1)
    assert least_loaded(1, [0, 1], {0: "0", 1: "1"}, {0: 1.0, 1: 4.0}) == (1,)  # what every system does


def test_sibling_threads_and_other_cores_are_separate_groups():
    assert neighbour_groups((7,), range(8), PAIRED) == ((3,), (0, 1, 2, 3, 4, 5, 6))
    assert neighbour_groups((0,), [0, 1], {0: "0", 1: "1"}) == ((1,),)
    assert neighbour_groups((0, 1), [0, 1], {0: "0", 1: "1"}) == ()


def test_seconds_of_each_core():
    text = "cpu  1 2 3\ncpu0 10 0 10 80 9 2 3 50 0 0\ncpu1 0 0 0 0 0 0 0 0\ncpuidle x\n"
    assert list(parse_core_seconds(text)) == [0, 1]
    assert parse_core_seconds(text)[0] == pytest.approx((0.25, 0.5))


linux = pytest.mark.skipif(sys.platform != "linux", reason="what Linux counts")


def test_memory_is_reported():
    assert available_memory() > 0
    assert (resident_memory() or 0) > 1e6
    if sys.platform == "linux":
        assert (peak_memory() or 0) >= (resident_memory() or 0) * 0.9


@linux
def test_process_exceeding_its_limit_gets_a_memory_error():
    code = (
        "from compress.measure.timing.process_limits import limit_memory; import pathlib\n"
        "limit_memory(300_000_000)\n"
        "print(pathlib.Path('/proc/self/oom_score_adj').read_text().strip())\n"
        "try:\n    held = bytearray(600_000_000)\nexcept MemoryError:\n    print('too much')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["1000", "too much"]


@linux
def test_worker_ends_with_its_session():
    child = "from compress.measure.timing.process_limits import ignore_sigint as l; l(); print('up', flush=True)\n"
    child += "import time; time.sleep(60)"
    parent = f"import subprocess, sys, os\np = subprocess.Popen([sys.executable, '-c', {child!r}], "
    parent += "stdout=subprocess.PIPE)\np.stdout.readline(); print(p.pid, flush=True); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=False)
    orphan = int(done.stdout)
    end = time.monotonic() + 10
    while time.monotonic() < end and alive(orphan):
        time.sleep(0.01)
    assert not alive(orphan)


def alive(process: int) -> bool:
    try:
        fields = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return fields.rpartition(")")[2].split()[0] != "Z"


@linux
def test_process_sharing_its_core_has_waited():
    code = (
        "import os, time; from compress.measure.timing.timing_loop import RunQueueWait\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "child = os.fork()\n"
        "if child == 0:\n    end = time.time() + 5\n    while time.time() < end: pass\n    os._exit(0)\n"
        "with RunQueueWait() as queue:\n    before = queue.read(); end = time.time() + 0.5\n"
        "    while time.time() < end: pass\n    print(queue.since(before))\n"
        "os.kill(child, 9); os.waitpid(child, 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 10.0


def test_system_without_counters_reports_no_waits(monkeypatch, tmp_path):
    monkeypatch.setattr(timing_loop, "TASKS", tmp_path / "missing")
    with RunQueueWait() as queue:
        assert not queue.counts
        assert queue.since(queue.read()) == 0.0
    assert time_passes(lambda call: None, [0, 1]).waits == ()


def test_zero_schedstat_counts_as_unknown(monkeypatch, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "schedstat").write_text("0 0 0\n")
    monkeypatch.setattr(timing_loop, "TASKS", tmp_path)
    with RunQueueWait() as queue:
        assert not queue.counts


def test_container_memory_excludes_cached_files(tmp_path):
    (tmp_path / "cgroup").write_text("0::/box/inner\n")
    for folder, most, used in (("box", 10_000_000, 9_000_000), ("box/inner", 8_000_000, 6_000_000)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "memory.max").write_text(f"{most}\n")
        (tmp_path / folder / "memory.current").write_text(f"{used}\n")
        (tmp_path / folder / "memory.stat").write_text("anon 5\nactive_file 3000000\ninactive_file 1000000\n")
    assert container_memory(tmp_path, tmp_path / "cgroup") == 5_000_000
    (tmp_path / "box" / "memory.max").write_text("max\n")
    assert container_memory(tmp_path, tmp_path / "cgroup") == 6_000_000
    assert container_memory(tmp_path / "none", tmp_path / "none") > 0


@linux
def test_counters_are_closed():
    before = len(list(Path("/proc/self/fd").iterdir()))
    with RunQueueWait() as queue:
        queue.read()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
