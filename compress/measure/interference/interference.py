"""What else went on while a worker took its turns: other processes, the hypervisor, heat, a container's limit.

A worker counts around each of its turns; the session adds up and judges. A timing is not mended by this: it is called
unstable, with what was seen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.environment.cgroup_limits import CGROUP, OWN, cgroup_folders
from compress.environment.os_probe import read_int, read_text
from compress.measure.interference.gpu_monitor import GpuMonitor
from compress.measure.result_base import ResultModel
from compress.measure.timing.cpu_affinity import BUSY, STOLEN, ticks
from compress.measure.timing.latency import Noise, Timing

MOST_SPREAD = 0.10
"""Spread of the rounds' medians above which a timing is called unstable: quiet machines stay below 3 %."""
MOST_OTHER_LOAD = 0.10
"""Share of the worker's cores: one call in ten then has waited, and p95 tells of the neighbour, not of the model."""
MOST_WAITED = 0.05
"""Share of the calls' time in line for a core: one call in twenty then is one that waited, and p95 tells of waiting."""
LEAST_WAIT = 0.5
"""Milliseconds of a call below which its wait is the handing over among the process's own threads: another process
keeps a core for longer than that."""
MOST_BESIDE = 0.50
"""Share of the other cores: from half of them on caches, memory and power are shared with something that works."""
MOST_STOLEN = 0.02
"""Share of the worker's cores: a hypervisor takes them for milliseconds at a time, which are whole calls."""
MOST_THROTTLED = 0.1
"""Times a round: rarer ones are outliers that a median passes over."""
MOST_ON_DEVICE = 0.05
"""Share of the accelerator: the kernels of others run among the model's own, and each of them is waited for."""
MOST_UNSTEADY = 0.10
"""Share of the processes whose warm-up did not come to an end: as much as is trimmed from an interval's either end."""
CLOCK = 100.0
"""Ticks a second in /proc/stat, on every Linux a program meets."""
LEAST_TICKS = 20
"""Ticks below which shares of them are rounding: a fifth of a second a core."""
HEAT = "/sys/devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count"


class Interference(ResultModel):
    """What one turn's counters showed; None where the system does not tell."""

    elapsed: float
    """Seconds."""
    busy: float | None = None
    """Core seconds of the worker's cores in which other processes ran."""
    stolen: float | None = None
    """Core seconds of the worker's cores that the hypervisor gave away."""
    beside: tuple[float, ...] = ()
    """Core seconds in which each group of cores beside the worker's was busy."""
    preempted: int | None = None
    throttled: int | None = None
    device_load: float | None = None
    """Share of the accelerator that other processes took."""
    device_held: tuple[str, ...] | None = None
    """What held the accelerator's clock down at the end of the turn."""


@dataclass(frozen=True)
class InterferenceMonitor:
    """Counts on the worker's cores and its accelerator, from inside the worker."""

    own: tuple[int, ...]
    beside: tuple[tuple[int, ...], ...] = ()
    watch: GpuMonitor = field(default_factory=GpuMonitor)

    def look(self) -> Counters:
        """The counters as they stand."""
        seen = ticks() if self.own else {}
        return Counters(time.perf_counter(), time.process_time(), seen, _preempted(), self._held(), self.watch.look())

    def heard(self, before: Counters) -> Interference:
        """What happened since ``before``."""
        held = self.watch.held_down()  # at once, while the accelerator still feels the last call
        now = self.look()
        known = all(core in look.ticks for look in (before, now) for core in self.own) and bool(self.own)
        busy = _seconds(before, now, self.own, BUSY) - (now.processor - before.processor) if known else None
        return Interference(
            elapsed=now.clock - before.clock,
            busy=busy,
            stolen=_seconds(before, now, self.own, (STOLEN,)) if known else None,
            beside=tuple(_seconds(before, now, group, BUSY) for group in self.beside) if known else (),
            preempted=_since(before.preempted, now.preempted),
            throttled=_since(before.throttled, now.throttled),
            device_load=self.watch.others(before.device),
            device_held=held,
        )

    def _held(self) -> int | None:
        """Events so far in which heat or the container's quota held the worker's cores up."""
        heat = [read_int(Path(HEAT.format(core))) for core in self.own]
        told = [count for count in (*heat, _throttled(CGROUP, OWN)) if count is not None]
        return sum(told) if told else None


@dataclass(frozen=True)
class Counters:
    """Counters at one moment."""

    clock: float
    processor: float
    """Seconds that this process has computed, all its threads together."""
    ticks: dict[int, tuple[int, ...]]
    preempted: int | None
    throttled: int | None
    device: int = 0
    """Microseconds since 1970, to ask the accelerator from."""


def aggregate(turns: Sequence[Interference], own: int, beside: Sequence[int] = ()) -> Noise | None:
    """All turns of a job together.

    Args:
        turns: what each heard.
        own: the number of the worker's cores.
        beside: the number of cores in each group beside them.
    """
    elapsed = sum(turn.elapsed for turn in turns)
    if not turns or not elapsed:
        return None
    enough = bool(own) and elapsed * CLOCK >= LEAST_TICKS
    other, stolen = _total(turn.busy for turn in turns), _total(turn.stolen for turn in turns)
    preempted, throttled = _total(turn.preempted for turn in turns), _total(turn.throttled for turn in turns)
    loads = [turn.device_load for turn in turns if turn.device_load is not None]
    held = [turn.device_held for turn in turns if turn.device_held is not None]
    groups = zip(*(turn.beside for turn in turns), strict=True)
    around = [sum(group) / (elapsed * cores) for group, cores in zip(groups, beside, strict=False)]
    return Noise(
        other_load=_share(other, elapsed * own) if enough else None,
        beside=_share(max(around), 1.0) if enough and around else None,
        stolen=_share(stolen, elapsed * own) if enough else None,
        preempted=None if preempted is None else preempted / elapsed,
        throttled=None if throttled is None else int(throttled),
        device_load=sum(loads) / len(loads) if loads else None,
        device_throttled=sum(map(bool, held)) if held else None,
        device_held_by=tuple(dict.fromkeys(reason for reasons in held for reason in reasons)),
    )


def waited_share(calls: Sequence[NDArray[np.float64]], waited: Sequence[NDArray[np.float64]]) -> float | None:
    """Share of the calls' time that was spent in line for a core; None where the system does not tell.

    Args:
        calls: milliseconds of the calls of each round.
        waited: what of each was spent in line; empty rounds where that is not told.
    """
    if not calls or not all(map(len, waited)):
        return None
    lost = sum(float(one[one >= LEAST_WAIT].sum()) for one in waited)
    return _share(lost, sum(float(one.sum()) for one in calls))


def disturbances(noise: Noise | None, *timings: Timing | None) -> list[str]:
    """What makes timings unstable, in words; nothing where they may be believed.

    Args:
        noise: heard during the turns of all of them.
        timings: the parts of one row.
    """
    found = []
    widest = max((timing.spread for timing in timings if timing is not None), default=0.0)
    if widest > MOST_SPREAD:
        found.append(f"the rounds' medians spread by {widest:.0%}, more than {MOST_SPREAD:.0%}")
    if noise is None:
        return found
    if (noise.other_load or 0.0) > MOST_OTHER_LOAD:
        found.append(f"other work took {noise.other_load:.0%} of its cores")
    if (noise.waited or 0.0) > MOST_WAITED:
        often = "" if noise.preempted is None else f", put off it {noise.preempted:.0f} times a second"
        found.append(f"its calls stood in line for a core for {noise.waited:.0%} of their time{often}")
    if (noise.beside or 0.0) > MOST_BESIDE:
        found.append(f"the cores beside were {noise.beside:.0%} busy with other work")
    if (noise.stolen or 0.0) > MOST_STOLEN:
        found.append(f"the hypervisor took {noise.stolen:.0%} of its cores")
    rounds = max((len(timing.round_medians) for timing in timings if timing is not None), default=0)
    if (noise.throttled or 0) > MOST_THROTTLED * rounds:
        found.append(f"heat or a limit of the container held it up {noise.throttled} times")
    return found + _on_device(noise, max(rounds, 1))


def _on_device(noise: Noise, rounds: int) -> list[str]:
    found = []
    if (noise.device_load or 0.0) > MOST_ON_DEVICE:
        found.append(f"other work took {noise.device_load:.0%} of the accelerator")
    if (noise.device_throttled or 0) > MOST_THROTTLED * rounds:
        reasons = " and ".join(noise.device_held_by)
        found.append(f"{reasons} held the accelerator's clock down in {noise.device_throttled} turns")
    return found


def uneven_laps(
    laps: Sequence[Interference | None], rates: Sequence[float], own: int, beside: Sequence[int]
) -> list[str]:
    """What makes throughput and waiting under load unstable, in words.

    Args:
        laps: what each lap heard.
        rates: rows a second of each lap.
        own: the number of the worker's cores.
        beside: the number of cores in each group beside them.
    """
    found, apart = [], (max(rates) - min(rates)) / max(rates)
    if apart > MOST_SPREAD:
        found.append(f"its laps differ by {apart:.0%} in rows a second, more than {MOST_SPREAD:.0%}")
    return found + disturbances(aggregate([lap for lap in laps if lap is not None], own, beside))


def unsteady_starts(unsteady: int, processes: int) -> list[str]:
    """That too many processes were still getting faster (or slower) when their turns began, in words."""
    if unsteady <= MOST_UNSTEADY * processes:
        return []
    which = "" if processes == 1 else f" in {unsteady} of {processes} processes"
    return [f"warming up did not get its time steady{which}"]


def _seconds(before: Counters, now: Counters, cores: Iterable[int], columns: Iterable[int]) -> float:
    columns = tuple(columns)
    return sum(
        (now.ticks[core][column] - before.ticks[core][column]) / CLOCK
        for core in cores
        if core in now.ticks and core in before.ticks
        for column in columns
    )


def _since(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _share(part: float | None, of: float) -> float | None:
    """Never outside of 0 to 1, which ticks can be by rounding."""
    return None if part is None else min(1.0, max(0.0, part / of))


def _preempted() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _throttled(cgroup: Path, own: Path) -> int | None:
    """How often quotas have stopped this process's groups so far; None where no group tells."""
    found = None
    for folder in dict.fromkeys(cgroup_folders(cgroup, own, "cpu")):
        for line in read_text(folder / "cpu.stat").splitlines():
            name, _, value = line.partition(" ")
            if name == "nr_throttled" and value.isdigit():
                found = (found or 0) + int(value)
    return found
