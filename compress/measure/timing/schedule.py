"""Who takes turns when, how long a process lives, and what fits into a budget. Pure arithmetic.

A session is a row of generations: in each, the jobs' processes take one round or a few; then those that are cheap to
start are replaced. Rounds come in pairs, the second in the reverse order of the first, so that a machine that slows
down steadily favours nobody; and the longer a job takes to start, the more generations its processes live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

import numpy as np

CHEAP_START = 2.0
"""Seconds of starting (a turn or two's worth) that a job may spend in every generation. One that takes longer lives for
two generations, four, eight...: powers of two, so that the lives of any two jobs begin and end together."""
BUDGET_PROCESSES = 10
"""Processes that a budget is laid out for, before it is used up with more."""
BUDGET_ROUNDS = 3
"""Rounds of each: the fewest whose median passes over a disturbed one."""
SHORTEST_TURN = 0.1
"""Seconds below which starting and ending a turn, and calls of unequal lengths, make up too much of it."""
FEWEST_ROUNDS = 3
"""Rounds below which a spread means nothing."""
LOAD_LAPS = 2
"""Times that each number of callers is tried, the jobs interleaved."""
LEAST_FOR_P95 = 20
"""Calls."""
LOAD_CALLS = -(-LEAST_FOR_P95 // LOAD_LAPS)
"""Answers to wait for in each lap, so that all of them tell a p95."""
LONGEST_LOAD = 10.0
"""Seconds after which a lap ends also with fewer answers."""


def rounds_before_restart(start_seconds: float) -> int:
    """The generations that a process lives which takes so long to start."""
    lives = 1
    while start_seconds > CHEAP_START * lives:
        lives *= 2
    return lives


def rounds_per_process(rounds: int, processes: int) -> list[int]:
    """The rounds of each generation, as even as they go."""
    generations = min(rounds, processes)
    return [len(part) for part in np.array_split(np.arange(rounds), generations)]


def rounds_in_time(rounds: int, processes: int, foreseen: float, wanted: float) -> int:
    """How many of the rounds are taken where one takes longer than was wanted: as many as fit the time meant for all.

    Models so slow that a pass over the calls exceeds a turn get fewer rounds, down to one a process: long calls are
    disturbed less each, and it is processes that count.
    """
    affordable = rounds if foreseen <= wanted else int(rounds * wanted / foreseen)
    return min(rounds, max(affordable, processes, FEWEST_ROUNDS))


def turn_orders(keys: Sequence[str], seed: int) -> Iterator[list[str]]:
    """The order of each round: a shuffled one, the same reversed, another shuffled one..."""
    random = np.random.default_rng(seed)
    while True:
        order = [str(key) for key in random.permutation(sorted(keys))]
        yield order
        yield order[::-1]


def turn_seconds(left: float, restart: float, jobs: int, longest: float) -> float:
    """The length of a turn with which what a budget was laid out for fits into what is ``left`` of it.

    Args:
        left: seconds left when all jobs have started.
        restart: seconds that starting all jobs anew takes.
        jobs: how many take turns.
        longest: seconds that a turn need not exceed.
    """
    turns = BUDGET_PROCESSES * BUDGET_ROUNDS * jobs
    return float(np.clip((left - (BUDGET_PROCESSES - 1) * restart) / turns, SHORTEST_TURN, longest))


def generation_fits(left: float, restart: float, round_seconds: float) -> int:
    """How many rounds (at most `BUDGET_ROUNDS`) of another generation fit into ``left`` seconds."""
    return int(np.clip((left - restart) / max(round_seconds, 1e-9), 0, BUDGET_ROUNDS))


def budget_too_small(
    budget: float, jobs: int, took: float, started: int, round_seconds: float | None = None, load: float = 0.0
) -> str:
    """What to say where a budget does not reach, with what would be needed at least.

    Args:
        budget: in seconds.
        jobs: how many should be timed.
        took: seconds spent until now.
        started: how many have been started in them.
        round_seconds: what a round would take, where that is known.
        load: seconds that the callers would take in the end.
    """
    models = "1 model" if jobs == 1 else f"{jobs} models"
    if not started:
        return f"the budget of {budget:g} s is too small for {models}: it was over before the first had started"
    which = "" if started >= jobs else f" {started} of them"
    told = f"starting{which} took {took:.0f} s"
    rounds = FEWEST_ROUNDS * (jobs * SHORTEST_TURN if round_seconds is None else round_seconds)
    if round_seconds is not None:
        told += f" and {FEWEST_ROUNDS} rounds would take {rounds:.0f} s"
    if load:
        told += f", and the callers {load:.0f} s"
    least = ceil(took * max(jobs / started, 1.0) + rounds + load)
    return f"the budget of {budget:g} s is too small for {models}; it takes at least {least} s: {told}"


def pending_work(callers: Sequence[int], calls: Mapping[str, float], seconds: float) -> float:
    """Seconds that the sweep over numbers of callers will take, by each job's seconds of a call."""
    return LOAD_LAPS * sum(lap_seconds(seconds, call) + count * call for count in callers for call in calls.values())


def lap_seconds(seconds: float, call: float) -> float:
    """How long callers ask at most, if a call takes so many seconds: in the worst case one waits for the other."""
    return max(seconds, min(LONGEST_LOAD, LOAD_CALLS * call))
