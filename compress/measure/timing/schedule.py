"""The order of turns, the lifetime of processes, and what fits into a time budget. Pure arithmetic.

A session is a sequence of generations: in each, the jobs' processes run one or a few rounds; then those that start
quickly are restarted. Rounds come in pairs, the second in the reverse order of the first, so that a machine that slows
down steadily favours no job; the longer a job takes to start, the more generations its processes live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

import numpy as np

from compress.errors import pluralize

DEFAULT_BUDGET = 45.0
"""Seconds of timing for all jobs together where the settings give neither a budget nor rounds or processes."""
DEFAULT_ROUNDS = 30
DEFAULT_PROCESSES = 10
CHEAP_START = 2.0
"""Seconds of starting (a turn or two) that a job may spend in every generation. One that takes longer lives for two
generations, four, eight...: powers of two, so that the lifetimes of any two jobs begin and end together."""
BUDGET_ROUNDS = 3
"""Rounds of each process within a budget: the fewest whose median ignores a disturbed one."""
MIN_TURN_SECONDS = 0.1
"""Below this, starting and ending a turn and calls of unequal lengths dominate it."""
MIN_ROUNDS = 3
"""Rounds below which a spread is meaningless."""
LOAD_LAPS = 2
"""How often each number of callers is measured, the jobs interleaved."""
MIN_CALLS_FOR_P95 = 20
LAP_CALLS = -(-MIN_CALLS_FOR_P95 // LOAD_LAPS)
"""Calls to wait for in each lap, so that all laps together give a p95."""
MAX_LAP_SECONDS = 10.0
"""A lap ends after this time even with fewer calls."""


def generations_lived(start_seconds: float) -> int:
    """Return the number of generations that a process with this start-up time lives."""
    generations = 1
    while start_seconds > CHEAP_START * generations:
        generations *= 2
    return generations


def planned_rounds(rounds: int | None, processes: int | None, expected: float, wanted: float) -> list[int]:
    """Return the number of rounds in each generation, as even as possible.

    Models so slow that a pass over the calls exceeds a turn get fewer rounds, down to one a process: long calls are
    disturbed less each, and it is the number of processes that counts.

    Args:
        rounds: of the settings.
        processes: of the settings.
        expected: seconds that a round takes.
        wanted: seconds that it should take.
    """
    rounds, processes = rounds or DEFAULT_ROUNDS, processes or DEFAULT_PROCESSES
    fitting = rounds if expected <= wanted else int(rounds * wanted / expected)
    count = min(rounds, max(fitting, processes, MIN_ROUNDS))
    return [len(part) for part in np.array_split(np.arange(count), min(count, processes))]


def turn_orders(keys: Sequence[str], seed: int) -> Iterator[list[str]]:
    """Yield the order of each round: a shuffled one, its reverse, another shuffled one..."""
    random = np.random.default_rng(seed)
    while True:
        order = [str(key) for key in random.permutation(sorted(keys))]
        yield order
        yield order[::-1]


def turn_seconds(left: float, restart: float, jobs: int, longest: float) -> float:
    """Return the turn length at which `DEFAULT_PROCESSES` processes of `BUDGET_ROUNDS` rounds fit into the budget.

    Args:
        left: seconds left of the budget once all jobs have started.
        restart: seconds that restarting all jobs takes.
        jobs: number of jobs.
        longest: upper limit of the result.
    """
    turns = DEFAULT_PROCESSES * BUDGET_ROUNDS * jobs
    return float(np.clip((left - (DEFAULT_PROCESSES - 1) * restart) / turns, MIN_TURN_SECONDS, longest))


def rounds_that_fit(left: float, restart: float, round_seconds: float) -> int:
    """Return how many rounds (at most `BUDGET_ROUNDS`) of another generation fit into ``left`` seconds."""
    return int(np.clip((left - restart) / max(round_seconds, 1e-9), 0, BUDGET_ROUNDS))


def budget_too_small(budget: float, jobs: int, started: int, elapsed: float, more: float) -> str:
    """Return the reason why a budget is too small, with the least that would do.

    Args:
        budget: in seconds.
        jobs: number of jobs.
        started: number of jobs that have started.
        elapsed: seconds that starting them took.
        more: seconds that everything after starting takes.
    """
    reason = f"the budget of {budget:.3g} s for timing is too small for {pluralize(jobs, 'model')}"
    if not started:
        return f"{reason}: it was used up before the first had started"
    starting = elapsed * max(jobs / started, 1.0)
    return f"{reason}; it takes at least {ceil(starting + more)} s, {starting:.0f} s of them for starting"


def load_test_seconds(callers: Sequence[int], call_seconds: Mapping[str, float], seconds: float) -> float:
    """Return the seconds that all closed loops of ``callers`` will take, given each job's seconds a call."""
    laps = (lap_seconds(seconds, call) + count * call for count in callers for call in call_seconds.values())
    return LOAD_LAPS * sum(laps)


def lap_seconds(seconds: float, call: float) -> float:
    """Return the longest time a lap takes if a call takes ``call`` seconds and calls run one after another."""
    return max(seconds, min(MAX_LAP_SECONDS, LAP_CALLS * call))
