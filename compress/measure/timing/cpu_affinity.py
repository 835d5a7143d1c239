"""Which cores a worker is pinned to: the same ones for every job of a session, those with the least other work.

One hardware thread a core is used while there are enough cores, since two threads of one core share its arithmetic.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from compress.environment.os_probe import read_text

SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
STAT = Path("/proc/stat")
SAMPLE_SECONDS = 0.3
"""How long the load of the cores is sampled before some are chosen: 30 ticks of the kernel's clock."""
LOAD_STEP = 5.0
"""Cores whose loads (in percent) fall into the same step count as equally loaded: every system has some load."""

# Columns of a core's line in /proc/stat, in ticks.
USER, NICE, SYSTEM, IDLE, IOWAIT, INTERRUPT, SOFT_INTERRUPT, STOLEN = range(8)
BUSY = (USER, NICE, SYSTEM, INTERRUPT, SOFT_INTERRUPT)


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


def parse_ticks(text: str) -> dict[int, tuple[int, ...]]:
    """Return each core's ticks since the start of the machine, by column, from the text of /proc/stat."""
    lines = (line.split() for line in text.splitlines() if line.startswith("cpu") and line[3:4].isdigit())
    return {int(name[3:]): tuple(map(int, ticks)) for name, *ticks in lines if len(ticks) > STOLEN}


def cpu_ticks() -> dict[int, tuple[int, ...]]:
    """Return each core's ticks until now; empty where the system does not report them."""
    return parse_ticks(read_text(STAT))
