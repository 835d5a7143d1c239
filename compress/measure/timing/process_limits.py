"""The memory a measuring process uses, and the limits it sets on itself before it loads a model."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path

from compress.measure.resources.nvml import Nvml

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

    from compress.environment.cgroup_limits import CGROUP, OWN

    return max(0, min(int(psutil.virtual_memory().available), container_memory(CGROUP, OWN)))


def container_memory(cgroup: Path, own: Path) -> int:
    """Return the bytes that the limits of this process's groups leave to it; the machine's memory without limits.

    Cached files count as used by a group and are freed when memory is short, so they are left out.
    """
    import psutil

    from compress.environment.cgroup_limits import cgroup_folders
    from compress.environment.os_probe import read_int, read_text

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
