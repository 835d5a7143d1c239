"""The cores and the memory of a measuring process: where it is pinned, what it uses, and the limits it sets on itself.

All jobs of a session get the same cores, those with the least other work. One hardware thread a core is used while
there are enough cores, since two threads of one core share its arithmetic.
"""

import ctypes
import os
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from compress.environment.os_probe import CGROUP, OWN, cgroup_folders, read_int, read_text
from compress.measure.resources.nvml import Nvml

SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
STAT = Path("/proc/stat")
SAMPLE_SECONDS = 0.3
"""How long the load of the cores is sampled before some are chosen: 30 ticks of the kernel's clock."""
LOAD_STEP = 5.0
"""Cores whose loads (in percent) fall into the same step count as equally loaded: every system has some load."""

# Columns of a core's line in /proc/stat: user, nice, system, interrupts, software interrupts; taken by a hypervisor.
BUSY, STOLEN = (0, 1, 2, 5, 6), 7
TICKS_PER_SECOND = 100.0
"""Of these columns, on every common Linux."""


@dataclass(frozen=True)
class Cores:
    """The cores of a worker and its neighbours; without its own, it is not pinned."""

    own: tuple[int, ...] = ()
    neighbours: tuple[tuple[int, ...], ...] = ()
    """Groups of other cores whose work slows the worker: the second hardware threads of its cores, and all the other
    cores that this process may use."""

    def pin(self) -> None:
        """Pin this process to its own cores."""
        if self.own and sys.platform == "linux":
            os.sched_setaffinity(0, self.own)


def choose_cores(threads: int) -> Cores:
    """Return the cores that the workers of a session are pinned to; none where the system cannot pin (not Linux)."""
    if sys.platform != "linux":
        return Cores()
    import psutil

    allowed = sorted(os.sched_getaffinity(0))
    # A container may hide the topology: then every core counts as a physical one.
    siblings = {core: read_text(Path(SIBLINGS.format(core))) or str(core) for core in allowed}
    loads = psutil.cpu_percent(SAMPLE_SECONDS, percpu=True) if threads < len(allowed) else []
    own = least_loaded(threads, allowed, siblings, dict(enumerate(loads)))
    return Cores(own, neighbour_groups(own, allowed, siblings))


def least_loaded(
    threads: int, allowed: Iterable[int], siblings: Mapping[int, str], loads: Mapping[int, float]
) -> tuple[int, ...]:
    """Return the least loaded ``threads`` allowed cores, distinct physical ones before their siblings.

    A physical core is as loaded as its threads are together; among equally loaded ones the last are chosen, since
    interrupts mostly go to the first.
    """
    physical: dict[str, float] = defaultdict(float)
    for core, name in siblings.items():
        physical[name] += loads.get(core, 0.0)
    order = sorted(allowed, key=lambda core: (int(physical[siblings[core]] / LOAD_STEP), -core))
    first = {siblings[core]: core for core in reversed(order)}
    order.sort(key=lambda core: first[siblings[core]] != core)
    return tuple(sorted(order[:threads]))


def neighbour_groups(
    own: Iterable[int], allowed: Iterable[int], siblings: Mapping[int, str]
) -> tuple[tuple[int, ...], ...]:
    """Return groups of cores whose work slows the worker; groups without a core are left out."""
    used = set(own)
    physical = {siblings[core] for core in used}
    others = tuple(core for core in allowed if core not in used)
    second_threads = tuple(core for core in others if siblings[core] in physical)
    return tuple(group for group in dict.fromkeys((second_threads, others)) if group)


def parse_core_seconds(text: str) -> dict[int, tuple[float, float]]:
    """Return the seconds that each core was busy and those that a hypervisor took from it, from /proc/stat's text."""
    cores = {}
    for name, *columns in map(str.split, text.splitlines()):
        if name.startswith("cpu") and name[3:].isdigit() and len(columns) > STOLEN:
            seconds = [int(ticks) / TICKS_PER_SECOND for ticks in columns]
            cores[int(name[3:])] = sum(seconds[column] for column in BUSY), seconds[STOLEN]
    return cores


def core_seconds() -> dict[int, tuple[float, float]]:
    """Return these seconds since the start of the machine; empty where the system does not report them."""
    return parse_core_seconds(read_text(STAT))


STATUS = Path("/proc/self/status")
OOM_SCORE = "1000"
"""The kernel's highest score: when memory runs out this process is killed, not the session or a desktop."""
UNLISTED = "NVML does not list this process, as in containers with process numbers of their own"
PR_SET_PDEATHSIG = 1


def limit_memory(memory: int | None) -> None:
    """Make this process fail before the machine does: allow at most ``memory`` bytes of data.

    An allocation beyond it raises and can be reported as a batch that does not fit; without the limit the kernel kills
    a process, and not always this one. Only Linux counts allocations; elsewhere nothing is limited.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
    if memory is not None:
        import resource

        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (memory, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def ignore_sigint() -> None:
    """Ignore Ctrl-C, which a terminal sends to all (the session ends its workers), and end with the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def available_memory() -> int:
    """Return the bytes that are free for a worker: on the machine, or within its container."""
    import psutil

    return max(0, min(int(psutil.virtual_memory().available), container_memory(CGROUP, OWN)))


def container_memory(cgroup: Path, own: Path) -> int:
    """Return the bytes that the limits of this process's groups leave to it; the machine's memory without limits.

    Cached files count as used by a group and are freed when memory is short, so they are left out.
    """
    import psutil

    left = [int(psutil.virtual_memory().total)]
    for folder in cgroup_folders(cgroup, own, "memory"):
        files = sum(map(int, re.findall(r"^(?:in)?active_file (\d+)", read_text(folder / "memory.stat"), re.MULTILINE)))
        for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            most, used = read_int(folder / limit), read_int(folder / usage)
            if most is not None:
                left.append(most - max(0, (used or 0) - files))
    return min(left)


def peak_memory() -> int | None:
    """Return the most memory this process has held, in bytes.

    On Linux from /proc: getrusage starts there with the size of the process that started this one.
    """
    if sys.platform == "linux":
        return _status("VmHWM")
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def reset_peak_memory() -> bool:
    """Start `peak_memory` anew for this process; False where the system does not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return sys.platform == "linux"


def resident_memory() -> int | None:
    """Return the memory this process holds now, in bytes."""
    if sys.platform == "linux":
        return _status("VmRSS")
    import psutil

    return int(psutil.Process().memory_info().rss)


def device_memory(device: str) -> tuple[int | None, str | None]:
    """Return the memory this process holds on the accelerator, and where the figure is from or why there is none.

    All of it by NVML, or else what torch has allocated. NVML reports this moment, which is about the peak: runtimes
    keep what they have allocated. Both are None where no accelerator is used.
    """
    if device != "cuda":
        return None, None
    nvml = Nvml.open()
    held = nvml.process_memory().get(os.getpid())
    if held is not None:
        return held, "NVML: the process, with what CUDA itself takes"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():  # torch does not count the allocations of other runtimes
        return int(torch.cuda.max_memory_allocated()), "torch's tensors, without what CUDA itself takes"
    return None, f"memory on the device is not measured: {nvml.missing or UNLISTED}"


def _status(name: str) -> int | None:
    """Return a size in this process's status, in bytes."""
    size = re.search(rf"^{name}:\s+(\d+) kB", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    return int(size[1]) * 1024 if size else None
