"""Which cores a worker runs on: the same ones for every job of a session, those with the least other work.

One hardware thread a core is taken while there are enough, since two threads of one core share its arithmetic.
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
LOOK_SECONDS = 0.3
"""How long the cores are watched before some are chosen: 30 ticks of the kernel's clock."""
ALIKE = 0.05
"""Steps in which the cores' load counts: below it lies what every system does all the time."""

# Columns of a core's line in /proc/stat, in ticks.
USER, NICE, SYSTEM, IDLE, WAITING, INTERRUPT, SOFT_INTERRUPT, STOLEN = range(8)
BUSY = (USER, NICE, SYSTEM, INTERRUPT, SOFT_INTERRUPT)


@dataclass(frozen=True)
class Cores:
    """The cores of a worker and those beside them."""

    own: tuple[int, ...]
    beside: tuple[tuple[int, ...], ...] = ()
    """Groups of other cores whose work is felt: the second hardware threads of the worker's cores, and all the other
    cores that this process may use."""


def choose_cores(threads: int) -> Cores | None:
    """The cores that the workers of a session are held to; None where the system has no say in it (not Linux)."""
    if sys.platform != "linux":
        return None
    allowed = sorted(os.sched_getaffinity(0))
    siblings = {core: _siblings(core) for core in allowed}
    own = choose(threads, allowed, siblings, loads() if threads < len(allowed) else {})
    return Cores(own, beside(own, allowed, siblings))


def cores_for(threads: int) -> tuple[int, ...] | None:
    """The cores alone."""
    found = choose_cores(threads)
    return found.own if found else None


def choose(
    threads: int, allowed: Iterable[int], siblings: Mapping[int, str], load: Mapping[int, float] | None = None
) -> tuple[int, ...]:
    """The least loaded ``threads`` allowed cores, distinct physical ones before their siblings.

    A physical core is as loaded as its threads are together; where loads are alike the last cores are taken, since
    interrupts like the first.
    """
    loads, together = load or {}, dict[str, float]()
    for core in siblings:
        together[siblings[core]] = together.get(siblings[core], 0.0) + loads.get(core, 0.0)
    firsts: list[int] = []
    seconds: list[int] = []
    seen: set[str] = set()
    for core in sorted(allowed, key=lambda core: (int(together[siblings[core]] / ALIKE), -core)):
        (seconds if siblings[core] in seen else firsts).append(core)
        seen.add(siblings[core])
    return tuple(sorted([*firsts, *seconds][:threads]))


def beside(own: Iterable[int], allowed: Iterable[int], siblings: Mapping[int, str]) -> tuple[tuple[int, ...], ...]:
    """Groups of cores whose work the worker feels; groups without a core are left out."""
    taken = set(own)
    physical = {siblings[core] for core in taken}
    others = tuple(core for core in allowed if core not in taken)
    second_threads = tuple(core for core in others if siblings[core] in physical)
    return tuple(group for group in dict.fromkeys((second_threads, others)) if group)


def read_ticks(text: str) -> dict[int, tuple[int, ...]]:
    """Each core's ticks since the start of the machine, by column, from the text of /proc/stat."""
    lines = (line.split() for line in text.splitlines() if line.startswith("cpu") and line[3:4].isdigit())
    return {int(name[3:]): tuple(map(int, ticks)) for name, *ticks in lines if len(ticks) > STOLEN}


def ticks() -> dict[int, tuple[int, ...]]:
    """Each core's ticks until now; empty where the system does not tell."""
    try:
        return read_ticks(STAT.read_text(encoding="ascii"))
    except OSError:
        return {}


def loads(seconds: float = LOOK_SECONDS) -> dict[int, float]:
    """The share of each core that is busy just now; empty where the system does not tell."""
    before = ticks()
    if not before:
        return {}
    time.sleep(seconds)
    return shares(before, ticks())


def shares(before: Mapping[int, tuple[int, ...]], after: Mapping[int, tuple[int, ...]]) -> dict[int, float]:
    """The share of each core that was busy between two looks."""
    found = {}
    for core in before.keys() & after.keys():
        passed = [late - early for early, late in zip(before[core], after[core], strict=True)]
        total = sum(passed[: STOLEN + 1])
        found[core] = sum(passed[column] for column in BUSY) / total if total else 0.0
    return found


def _siblings(core: int) -> str:
    try:
        return Path(SIBLINGS.format(core)).read_text(encoding="ascii").strip()
    except OSError:  # a container may hide the topology: then every core counts as its own
        return str(core)
