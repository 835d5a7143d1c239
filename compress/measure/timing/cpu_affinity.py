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
