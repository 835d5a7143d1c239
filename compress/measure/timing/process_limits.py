"""What a worker process knows of its own memory, and the limits it puts on itself before it loads a model."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

STATUS = Path("/proc/self/status")
FIRST_TO_GO = "1000"
"""The kernel's highest score: where memory runs out this process ends, and not the one that measures or a desktop."""
UNLISTED = "NVML does not tell this process's, as in containers with process numbers of their own"
DIE_WITH_PARENT = 1
"""prctl's PR_SET_PDEATHSIG."""


def limit_memory(memory: int | None) -> None:
    """Let this process fail before the machine does: at most ``memory`` bytes of data of its own.

    An allocation beyond it raises, and can be told as a batch that does not fit; without it the kernel ends a process,
    and not always this one. Only Linux counts what is allocated; elsewhere nothing is limited.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO, encoding="ascii")
    if memory is not None:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def ignore_sigint() -> None:
    """Take no notice of Ctrl-C, which a terminal sends to all: the session ends its workers; and never outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(DIE_WITH_PARENT, int(signal.SIGKILL))


def memory_to_use() -> int:
    """Bytes that are free for a worker: what the machine has left, or what its container does."""
    import psutil

    from compress.environment.cgroup_limits import CGROUP, OWN

    return max(0, min(int(psutil.virtual_memory().available), container_memory(CGROUP, OWN)))


def container_memory(cgroup: Path, own: Path) -> int:
    """Bytes that the limits of this process's groups leave to it; the machine's memory where nothing limits it.

    What a group holds of files counts as used and is given back when memory is short, so it is left out.
    """
    import psutil

    from compress.environment.cgroup_limits import cgroup_folders
    from compress.environment.os_probe import read_text

    left = [int(psutil.virtual_memory().total)]
    for folder in cgroup_folders(cgroup, own, "memory"):
        kept = dict(line.split(maxsplit=1) for line in read_text(folder / "memory.stat").splitlines() if " " in line)
        files = sum(int(kept.get(name, 0)) for name in ("active_file", "inactive_file"))
        for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            most, used = read_text(folder / limit), read_text(folder / usage)
            if most.isdigit():
                left.append(int(most) - max(0, (int(used) if used.isdigit() else 0) - files))
    return min(left)


def peak_memory() -> int | None:
    """The most memory this process has held, in bytes.

    On Linux from /proc: what getrusage tells there begins with the size of the process that started this one.
    """
    if sys.platform == "linux":
        return _status("VmHWM:")
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
    """The memory this process holds now, in bytes."""
    if sys.platform == "linux":
        return _status("VmRSS:")
    import psutil

    return int(psutil.Process().memory_info().rss)


@dataclass(frozen=True)
class OnDevice:
    """Memory of this process on the accelerator."""

    bytes: int | None = None
    source: str | None = None
    """What tells it, or why nothing does; None where no accelerator is used."""


def device_memory(device: str) -> OnDevice:
    """The memory this process holds on the accelerator: all of it by NVML, or else what torch has allocated at most.

    NVML tells of this moment, which is about the most so far: runtimes keep what they took, for the answers to come.
    """
    if device != "cuda":
        return OnDevice()
    held, reason = _held_by_nvml()
    if held is not None:
        return OnDevice(held, "NVML: the process, with what CUDA itself takes")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():  # other runtimes tell torch nothing
        return OnDevice(int(torch.cuda.max_memory_allocated()), "torch's tensors, without what CUDA itself takes")
    return OnDevice(None, f"memory on the device is not measured: {reason}")


def _held_by_nvml() -> tuple[int | None, str]:
    """Bytes, or why there are none."""
    from compress.measure.resources.energy import NvmlUnavailable, first_accelerator

    try:
        nvml, handle = first_accelerator()
    except NvmlUnavailable as reason:
        return None, str(reason)
    try:
        told = {each.pid: each.usedGpuMemory for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    except nvml.NVMLError as error:
        return None, f"NVML says: {error}"
    return told.get(os.getpid()), UNLISTED


def _status(name: str) -> int | None:
    for line in STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return None
