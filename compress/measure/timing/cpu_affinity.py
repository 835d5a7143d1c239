"""Which cores a worker is pinned to: the same ones for every job of a session, those with the least other work.

One hardware thread a core is used while there are enough cores, since two threads of one core share its arithmetic.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
STAT = Path("/proc/stat")
SAMPLE_SECONDS = 0.3
"""How long the load of the cores is sampled before some are chosen: 30 ticks of the kernel's clock."""
LOAD_STEP = 0.05
"""Cores whose loads fall into the same step count as equally loaded: every system has some load all the time."""

# Columns of a core's line in /proc/stat, in ticks.
USER, NICE, SYSTEM, IDLE, IOWAIT, INTERRUPT, SOFT_INTERRUPT, STOLEN = range(8)
BUSY = (USER, NICE, SYSTEM, INTERRUPT, SOFT_INTERRUPT)


@dataclass(frozen=True)
class Cores:
    """The cores of a worker and its neighbours."""

    own: tuple[int, ...]
    neighbours: tuple[tuple[int, ...], ...] = ()
    """Groups of other cores whose work slows the worker: the second hardware threads of its cores, and all the other
    cores that this process may use."""


def choose_cores(threads: int) -> Cores | None:
    """Return the cores that the workers of a session are pinned to; None where the system cannot pin (not Linux)."""
    if sys.platform != "linux":
        return None
    allowed = sorted(os.sched_getaffinity(0))
    siblings = {core: _siblings(core) for core in allowed}
    own = least_loaded(threads, allowed, siblings, core_loads() if threads < len(allowed) else {})
    return Cores(own, neighbour_groups(own, allowed, siblings))


def own_cores(threads: int) -> tuple[int, ...] | None:
    """Return the chosen cores without their neighbours."""
    cores = choose_cores(threads)
    return cores.own if cores else None


def least_loaded(
    threads: int, allowed: Iterable[int], siblings: Mapping[int, str], loads: Mapping[int, float]
) -> tuple[int, ...]:
    """Return the least loaded ``threads`` allowed cores, distinct physical ones before their siblings.

    A physical core is as loaded as its threads are together; among equally loaded ones the last are chosen, since
    interrupts mostly go to the first.
    """
    physical = dict[str, float]()
    for core in siblings:
        physical[siblings[core]] = physical.get(siblings[core], 0.0) + loads.get(core, 0.0)
    firsts: list[int] = []
    seconds: list[int] = []
    seen: set[str] = set()
    for core in sorted(allowed, key=lambda core: (int(physical[siblings[core]] / LOAD_STEP), -core)):
        (seconds if siblings[core] in seen else firsts).append(core)
        seen.add(siblings[core])
    return tuple(sorted([*firsts, *seconds][:threads]))


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
    try:
        return parse_ticks(STAT.read_text(encoding="ascii"))
    except OSError:
        return {}


def core_loads(seconds: float = SAMPLE_SECONDS) -> dict[int, float]:
    """Return the share of each core that is busy now; empty where the system does not report it."""
    before = cpu_ticks()
    if not before:
        return {}
    time.sleep(seconds)
    return busy_shares(before, cpu_ticks())


def busy_shares(before: Mapping[int, tuple[int, ...]], after: Mapping[int, tuple[int, ...]]) -> dict[int, float]:
    """Return the share of each core that was busy between two readings."""
    shares = {}
    for core in before.keys() & after.keys():
        passed = [late - early for early, late in zip(before[core], after[core], strict=True)]
        total = sum(passed[: STOLEN + 1])
        shares[core] = sum(passed[column] for column in BUSY) / total if total else 0.0
    return shares


def _siblings(core: int) -> str:
    try:
        return Path(SIBLINGS.format(core)).read_text(encoding="ascii").strip()
    except OSError:  # a container may hide the topology: then every core counts as a physical one
        return str(core)
