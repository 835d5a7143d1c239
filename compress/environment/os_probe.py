"""What the operating system reports: small files, output of programs, and the cores and memory a process may use.

What cannot be read is empty rather than an error.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

UNKNOWN = "unknown"


def read_text(path: Path) -> str:
    """Return the text of a small file; empty where it does not exist or may not be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def read_int(path: Path) -> int | None:
    """Return the integer in a small file; None where there is none."""
    text = read_text(path)
    return int(text) if text.isdigit() else None


def command_output(command: list[str]) -> str:
    """Return what a program prints; empty where it is not installed or does not end."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


CGROUP = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def usable_cores(cgroup: Path = CGROUP, own: Path = OWN) -> int:
    """Return the cores that this process may use: its affinity and its container's quota, rounded down, at least 1."""
    affinity = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, int(min(affinity, core_quota(cgroup, own) or math.inf)))


def core_quota(cgroup: Path = CGROUP, own: Path = OWN) -> float | None:
    """Return the CPU time quota of the container in cores; None without a limit."""
    quota = min((_quota(folder) for folder in cgroup_folders(cgroup, own, "cpu")), default=math.inf)
    return None if math.isinf(quota) else quota


def memory_limit(cgroup: Path = CGROUP, own: Path = OWN) -> int:
    """Return the bytes of memory that this process may use: the machine's, or its container's where that is less."""
    import psutil

    limits = [int(psutil.virtual_memory().total)]
    for folder in cgroup_folders(cgroup, own, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = read_text(folder / name)
            if text.isdigit():
                limits.append(int(text))
    return min(limits)


def cgroup_folders(root: Path, own: Path, controller: str) -> list[Path]:
    """Return the folders whose limits apply: this process's group and all above it (v2), or the controller's (v1)."""
    folders = [root, root / controller]
    for line in read_text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            start = root if controllers == "" else root / controller
            parts = [part for part in path.split("/") if part and part != ".."]
            folders += [start.joinpath(*parts[: end + 1]) for end in range(len(parts))]
    return folders


def _quota(folder: Path) -> float:
    """Return the CPU time quota of a group in cores; infinite without a limit."""
    allowed, _, period = read_text(folder / "cpu.max").partition(" ")
    if not allowed:
        allowed, period = read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us")
    return int(allowed) / int(period) if allowed.isdigit() and period.isdigit() and int(period) else math.inf
