"""What else ran during a worker's turns, and whether its timing is stable in spite of it.

Other processes, the hypervisor, heat and a container's limit are counted around each turn. Thresholds on these counters
and on the spread of the timing decide. A timing is not corrected: it is called unstable, with what was seen.
"""

import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compress.environment.os_probe import CGROUP, OWN, cgroup_folders, read_int, read_text
from compress.measure.resources.nvml import Nvml
from compress.measure.result_base import ResultModel
from compress.measure.timing.latency import CallTimes, Noise, Timing
from compress.measure.timing.process_limits import Cores, core_seconds

THROTTLE_COUNT = "/sys/devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count"


class Interference(ResultModel):
    """What happened during one turn; None where the system does not report it."""

    elapsed: float = 0.0
    """Seconds."""
    busy: float | None = None
    """Core seconds of the worker's cores that other processes used."""
    stolen: float | None = None
    """Core seconds of the worker's cores that the hypervisor gave to other machines."""
    neighbours: tuple[float, ...] = ()
    """Core seconds in which each group of other cores was busy."""
    preempted: int | None = None
    throttled: int | None = None
    device_load: float | None = None
    """Share of the accelerator that other processes used."""
    device_held: tuple[str, ...] | None = None
    """What limited the accelerator's clock at the end of the turn."""


@dataclass(frozen=True)
class Counters:
    """Counters at one moment."""

    clock: float
    processor: float
    """CPU seconds of this process, all threads together."""
    cores: dict[int, tuple[float, float]]
    """Seconds that each core was busy, and that a hypervisor took from it."""
    preempted: int | None
    throttled: int | None
    device: int = 0
    """Microseconds since 1970, the clock of NVML's samples."""


@dataclass(frozen=True)
class InterferenceMonitor:
    """Reads the counters of the worker's cores and its accelerator, from inside the worker."""

    cores: Cores
    nvml: Nvml = field(default_factory=Nvml)

    def read(self) -> Counters:
        """Return the counters as they are now."""
        cores = core_seconds() if self.cores.own else {}
        now = time.time_ns() // 1000
        return Counters(time.perf_counter(), time.process_time(), cores, _preempted(), self._throttled(), now)

    def since(self, before: Counters) -> Interference:
        """Return what happened since ``before``."""
        held = self.nvml.clock_limits()  # at once, while the accelerator is still warm from the last call
        now, own = self.read(), self.cores.own
        both = before.cores.keys() & now.cores.keys()
        known = bool(own) and both.issuperset(own)

        def passed(cores: Iterable[int], column: int) -> float:
            return sum(now.cores[core][column] - before.cores[core][column] for core in cores if core in both)

        return Interference(
            elapsed=now.clock - before.clock,
            busy=passed(own, 0) - (now.processor - before.processor) if known else None,
            stolen=passed(own, 1) if known else None,
            neighbours=tuple(passed(group, 0) for group in self.cores.neighbours) if known else (),
            preempted=_difference(before.preempted, now.preempted),
            throttled=_difference(before.throttled, now.throttled),
            device_load=self.nvml.other_load(before.device),
            device_held=held,
        )

    def _throttled(self) -> int | None:
        """Return how often heat or the container's quota has stopped the worker's cores so far."""
        heat = [read_int(Path(THROTTLE_COUNT.format(core))) for core in self.cores.own]
        counts = [count for count in (*heat, *_quota_stops(CGROUP, OWN)) if count is not None]
        return sum(counts) if counts else None


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before


def _preempted() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _quota_stops(cgroup: Path, own: Path) -> list[int]:
    """Return how often CPU quotas have stopped each of this process's groups so far, where they report it."""
    stats = [read_text(folder / "cpu.stat") for folder in dict.fromkeys(cgroup_folders(cgroup, own, "cpu"))]
    return [int(count) for text in stats for count in re.findall(r"nr_throttled (\d+)", text)]


MAX_SPREAD = 0.10
"""Spread of the rounds' medians above which a timing is unstable: quiet machines stay below 3 %."""
MAX_OTHER_LOAD = 0.10
"""Share of the worker's cores: one call in ten has then waited, and p95 describes the other process, not the model."""
MAX_WAIT_SHARE = 0.05
"""Share of the calls' time spent waiting for a core: one call in twenty is then one that waited."""
MIN_WAIT = 0.5
"""Milliseconds of a call below which its wait is a switch among the process's own threads: another process keeps a core
for longer than that."""
MAX_NEIGHBOUR_LOAD = 0.50
"""Share of the other cores: above it, they compete for caches, memory and power."""
MAX_STOLEN = 0.02
"""Share of the worker's cores: a hypervisor takes them for milliseconds at a time, which are entire calls."""
MAX_THROTTLES = 0.1
"""Times a round: rarer ones are outliers that a median ignores."""
MAX_DEVICE_LOAD = 0.05
"""Share of the accelerator: the kernels of other processes run between the model's own and delay them."""
MAX_UNSTEADY = 0.10
"""Share of the processes whose warm-up did not end: as much as is trimmed from either end of an interval."""
MIN_SECONDS = 0.2
"""Below this, shares are rounding: the system counts in steps of 10 milliseconds a core."""


def aggregate(turns: Sequence[Interference], cores: Cores) -> Noise | None:
    """Sum the interference of all turns of a job on ``cores``; None without turns."""
    elapsed = sum(turn.elapsed for turn in turns)
    if not elapsed:
        return None
    own_seconds = elapsed * len(cores.own) if elapsed >= MIN_SECONDS else 0.0
    known = [turn for turn in turns if turn.neighbours]  # where the system's counters could be read
    groups, seen = zip(*(turn.neighbours for turn in known), strict=True), sum(turn.elapsed for turn in known)
    loads = [sum(group) / (seen * len(members)) for group, members in zip(groups, cores.neighbours, strict=False)]
    preempted, throttled = _total(turn.preempted for turn in turns), _total(turn.throttled for turn in turns)
    device_loads = [turn.device_load for turn in turns if turn.device_load is not None]
    held = [turn.device_held for turn in turns if turn.device_held is not None]
    return Noise(
        other_load=_share(_total(turn.busy for turn in turns), own_seconds),
        beside=_share(max(loads, default=None), 1.0 if own_seconds else 0.0),
        stolen=_share(_total(turn.stolen for turn in turns), own_seconds),
        preempted=None if preempted is None else preempted / elapsed,
        throttled=None if throttled is None else int(throttled),
        device_load=sum(device_loads) / len(device_loads) if device_loads else None,
        device_throttled=sum(map(bool, held)) if held else None,
        device_held_by=tuple(dict.fromkeys(reason for reasons in held for reason in reasons)),
    )


def wait_share(rounds: Sequence[CallTimes]) -> float | None:
    """Return the share of the calls' time that was spent waiting for a core; None where the system does not report it.

    Rounds without calls do not count.
    """
    timed = [times for times in rounds if times.total]
    if not all(times.waits for times in timed):
        return None
    lost = sum(wait for times in timed for wait in times.waits if wait >= MIN_WAIT)
    return _share(lost, sum(sum(times.total) for times in timed))


def instabilities(noise: Noise | None, *timings: Timing | None) -> list[str]:
    """Return the reasons why timings are unstable; none where they are stable.

    Args:
        noise: interference during the turns of all of them.
        timings: the parts of one row.
    """
    known = [timing for timing in timings if timing is not None]
    spread = max((timing.spread for timing in known), default=0.0)
    reasons = [f"the rounds' medians spread by {spread:.0%}, more than {MAX_SPREAD:.0%}"] if spread > MAX_SPREAD else []
    if noise is None:
        return reasons
    rounds = max((len(timing.round_medians) for timing in known), default=0)
    preemptions = "" if noise.preempted is None else f" ({noise.preempted:.0f} preemptions/s)"
    causes = " and ".join(noise.device_held_by)
    limits = (
        (noise.other_load, MAX_OTHER_LOAD, "other work used {:.0%} of its cores"),
        (noise.waited, MAX_WAIT_SHARE, f"calls waited for a CPU core {{:.0%}} of the time{preemptions}"),
        (noise.beside, MAX_NEIGHBOUR_LOAD, "the other cores were {:.0%} busy with other work"),
        (noise.stolen, MAX_STOLEN, "the hypervisor took {:.0%} of its cores"),
        (noise.throttled, MAX_THROTTLES * rounds, "heat or a container limit throttled it {} times"),
        (noise.device_load, MAX_DEVICE_LOAD, "other work used {:.0%} of the accelerator"),
        (
            noise.device_throttled,
            MAX_THROTTLES * max(rounds, 1),
            f"{causes} limited the accelerator's clock in {{}} turns",
        ),
    )
    return reasons + [text.format(value) for value, limit, text in limits if (value or 0.0) > limit]


def lap_instabilities(laps: Sequence[Interference], rates: Sequence[float], cores: Cores) -> list[str]:
    """Return the reasons why throughput and latency under load are unstable.

    Args:
        laps: interference during each lap.
        rates: rows a second of each lap.
        cores: of the worker.
    """
    reasons, difference = [], (max(rates) - min(rates)) / max(rates)
    if difference > MAX_SPREAD:
        reasons.append(f"its laps differ by {difference:.0%} in rows a second, more than {MAX_SPREAD:.0%}")
    return reasons + instabilities(aggregate(laps, cores))


def warm_up_instabilities(unsteady: int, processes: int) -> list[str]:
    """Return that too many processes were still getting faster (or slower) when their turns began."""
    if unsteady <= MAX_UNSTEADY * processes:
        return []
    subset = "" if processes == 1 else f" in {unsteady} of {processes} processes"
    return [f"call times were not steady after warm-up{subset}"]


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _share(part: float | None, total: float) -> float | None:
    """Return a share, clipped to 0 to 1, which rounded ticks may exceed; None where one of them is unknown."""
    return None if part is None or not total else min(1.0, max(0.0, part / total))
