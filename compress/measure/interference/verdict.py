"""Whether a timing is stable: thresholds on its spread and on the interference seen during its turns.

A timing is not corrected: it is called unstable, with what was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from compress.measure.interference.monitor import TICKS_PER_SECOND, Interference
from compress.measure.timing.cpu_affinity import Cores
from compress.measure.timing.latency import Noise, Timing

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
MIN_TICKS = 20
"""Ticks below which shares of them are rounding: a fifth of a second a core."""


def aggregate(turns: Sequence[Interference], cores: Cores | None) -> Noise | None:
    """Sum the interference of all turns of a job on ``cores``; None without turns."""
    elapsed = sum(turn.elapsed for turn in turns)
    if not turns or not elapsed:
        return None
    own = len(cores.own) if cores else 0
    enough = bool(own) and elapsed * TICKS_PER_SECOND >= MIN_TICKS
    other, stolen = _total(turn.busy for turn in turns), _total(turn.stolen for turn in turns)
    preempted, throttled = _total(turn.preempted for turn in turns), _total(turn.throttled for turn in turns)
    device_loads = [turn.device_load for turn in turns if turn.device_load is not None]
    held = [turn.device_held for turn in turns if turn.device_held is not None]
    groups = zip(*(turn.neighbours for turn in turns), strict=True)
    neighbours = [
        sum(group) / (elapsed * len(members))
        for group, members in zip(groups, cores.neighbours if cores else (), strict=False)
    ]
    return Noise(
        other_load=_share(other, elapsed * own) if enough else None,
        beside=_share(max(neighbours), 1.0) if enough and neighbours else None,
        stolen=_share(stolen, elapsed * own) if enough else None,
        preempted=None if preempted is None else preempted / elapsed,
        throttled=None if throttled is None else int(throttled),
        device_load=sum(device_loads) / len(device_loads) if device_loads else None,
        device_throttled=sum(map(bool, held)) if held else None,
        device_held_by=tuple(dict.fromkeys(reason for reasons in held for reason in reasons)),
    )


def wait_share(calls: Sequence[NDArray[np.float64]], waits: Sequence[NDArray[np.float64]]) -> float | None:
    """Return the share of the calls' time that was spent waiting for a core; None where the system does not report it.

    Args:
        calls: milliseconds of the calls of each round.
        waits: milliseconds that each of them waited; empty rounds where that is unknown.
    """
    if not calls or not all(map(len, waits)):
        return None
    lost = sum(float(times[times >= MIN_WAIT].sum()) for times in waits)
    return _share(lost, sum(float(times.sum()) for times in calls))


def instabilities(noise: Noise | None, *timings: Timing | None) -> list[str]:
    """Return the reasons why timings are unstable; none where they are stable.

    Args:
        noise: interference during the turns of all of them.
        timings: the parts of one row.
    """
    known = [timing for timing in timings if timing is not None]
    reasons = []
    spread = max((timing.spread for timing in known), default=0.0)
    if spread > MAX_SPREAD:
        reasons.append(f"the rounds' medians spread by {spread:.0%}, more than {MAX_SPREAD:.0%}")
    if noise is None:
        return reasons
    if (noise.other_load or 0.0) > MAX_OTHER_LOAD:
        reasons.append(f"other work used {noise.other_load:.0%} of its cores")
    if (noise.waited or 0.0) > MAX_WAIT_SHARE:
        preemptions = "" if noise.preempted is None else f" ({noise.preempted:.0f} preemptions/s)"
        reasons.append(f"calls waited for a CPU core {noise.waited:.0%} of the time{preemptions}")
    if (noise.beside or 0.0) > MAX_NEIGHBOUR_LOAD:
        reasons.append(f"the other cores were {noise.beside:.0%} busy with other work")
    if (noise.stolen or 0.0) > MAX_STOLEN:
        reasons.append(f"the hypervisor took {noise.stolen:.0%} of its cores")
    rounds = max((len(timing.round_medians) for timing in known), default=0)
    if (noise.throttled or 0) > MAX_THROTTLES * rounds:
        reasons.append(f"heat or a container limit throttled it {noise.throttled} times")
    if (noise.device_load or 0.0) > MAX_DEVICE_LOAD:
        reasons.append(f"other work used {noise.device_load:.0%} of the accelerator")
    if (noise.device_throttled or 0) > MAX_THROTTLES * max(rounds, 1):
        causes = " and ".join(noise.device_held_by)
        reasons.append(f"{causes} limited the accelerator's clock in {noise.device_throttled} turns")
    return reasons


def lap_instabilities(laps: Sequence[Interference], rates: Sequence[float], cores: Cores | None) -> list[str]:
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
    """Return a share, clipped to 0 to 1, which rounded ticks may exceed."""
    return None if part is None else min(1.0, max(0.0, part / total))
