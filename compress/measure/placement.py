"""Which cores a worker runs on: the same ones for every job, one hardware thread a core while there are enough."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def cores_for(threads: int) -> tuple[int, ...] | None:
    """The cores that a worker with so many threads is held to; None where the system has no say in it (not Linux)."""
    if sys.platform != "linux":
        return None
    allowed = sorted(os.sched_getaffinity(0))
    return choose(threads, allowed, {core: _siblings(core) for core in allowed})


def choose(threads: int, allowed: Iterable[int], siblings: Mapping[int, str]) -> tuple[int, ...]:
    """The last ``threads`` allowed cores (interrupts like the first), distinct physical ones before their siblings."""
    firsts: list[int] = []
    seconds: list[int] = []
    seen: set[str] = set()
    for core in sorted(allowed, reverse=True):
        (seconds if siblings[core] in seen else firsts).append(core)
        seen.add(siblings[core])
    return tuple(sorted([*firsts, *seconds][:threads]))


def _siblings(core: int) -> str:
    try:
        return Path(SIBLINGS.format(core)).read_text(encoding="ascii").strip()
    except OSError:  # a container may hide the topology: then every core counts as its own
        return str(core)
