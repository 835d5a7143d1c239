"""The harness checked against itself: identical models, a deliberately delayed one, and a busy neighbour process."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.harness import verdicts
from benchmarks.harness.benchmark_model import PRECISIONS
from benchmarks.harness.harness_results import Pairing, Row
from benchmarks.harness.harness_setting import Setting, run_session
from benchmarks.harness.other_tools import pinned_to
from compress.environment import usable_cores
from compress.measure.interference import MAX_NEIGHBOUR_LOAD
from compress.measure.timing.latency import Job

HANDICAP = 0.03
"""Share of each call's time by which a twin is slowed."""
NEIGHBOURLY = 3
"""Sessions with each neighbour, and without one, for twenty sessions of twins."""

QUIET, CHOSEN, ANY, PINNED = "quiet", "chosen core", "any core", "pinned core"
NEIGHBOURS = {
    CHOSEN: "the core loaded that the session would have chosen",
    ANY: "one core loaded, whichever the system chooses",
    PINNED: "the only core loaded that the session may use",
}
NOT_PINNABLE = "this system cannot pin a process to a core"
NO_FREE_CORE = "the session needs every core and cannot avoid it"

NOTICED = "every session that it affects is marked unstable, and most of the quiet ones are not"
GOALS = {
    CHOSEN: f"the ratio moves by less than {verdicts.CLOSE:.0%}; {NOTICED}",
    ANY: f"the ratio moves by less than {verdicts.CLOSE:.0%}; {NOTICED}",
    PINNED: f"{NOTICED}. Harder than what the harness has to do, since the session cannot avoid it: how far the ratio "
    "moves is reported but does not decide",
}

BURN = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1000000):
        pass
"""
"""Keeps one core busy, and ends when the process that started it has ended."""


def planned(parts: Sequence[str], sessions: int) -> list[Row]:
    """Return the rows of the requested parts."""
    rows = []
    if "slowed" in parts:
        rows.append(_slowed_row(_half(sessions)))
    if "neighbour" in parts:
        rows += [_neighbour_row(case) for case in NEIGHBOURS]
    if "aa" in parts:
        rows.append(_twins_row(sessions))
    return rows


def _twins_row(count: int) -> Row:
    least = verdicts.needed(verdicts.TRUSTED, count)
    return Row(
        key="aa",
        part="aa",
        what="two identical variants (fp32 and INT8 in turns)",
        goal=f"the ratio's interval holds 1.00 in {least} of {count} sessions",
    )


def _slowed_row(count: int) -> Row:
    least = verdicts.needed(verdicts.DISTINGUISHED, count)
    return Row(
        key="slowed",
        part="slowed",
        what=f"a variant and its twin slowed by {HANDICAP:.0%} (fp32 and INT8 in turns)",
        goal=f"the ratio's interval lies above 1.00 in {least} of {count} sessions",
    )


def _neighbour_row(case: str) -> Row:
    return Row(
        key=f"neighbour-{case.replace(' ', '-')}",
        part="neighbour",
        what=f"fp32 over INT8 with {NEIGHBOURS[case]}",
        goal=GOALS[case],
    )


def check_twins(setting: Setting) -> Iterator[Row]:
    """Sessions of two identical variants."""
    row, seen = _twins_row(setting.sessions), list[Pairing]()
    for number in range(setting.sessions):
        if setting.over:
            return
        seen.append(_twin_session(setting, number, 0.0))
        yield verdicts.twins(row, seen, setting.sessions)


def check_slowed(setting: Setting) -> Iterator[Row]:
    """Sessions of a variant and its slowed twin."""
    count = _half(setting.sessions)
    row, seen = _slowed_row(count), list[Pairing]()
    for number in range(count):
        if setting.over:
            return
        seen.append(_twin_session(setting, number, HANDICAP))
        yield verdicts.slowed(row, seen, count)


def _twin_session(setting: Setting, number: int, handicap: float) -> Pairing:
    """The slowed one first, so that the ratio is the slower one's time over the faster one's."""
    precision = PRECISIONS[number % len(PRECISIONS)]
    jobs = [_job(setting, "twin", precision, slowed=handicap), _job(setting, "plain", precision)]
    return run_session(setting, precision, jobs, None, seed=number)


def check_neighbour(setting: Setting) -> Iterator[Row]:
    """Sessions without a neighbour, and with one on each of the cores that matter."""
    count = max(1, round(setting.sessions * NEIGHBOURLY / 20))
    others = usable_cores() - setting.threads
    unavailable = dict(_unavailable_cases(setting, others))
    for case, reason in unavailable.items():
        yield _neighbour_row(case).model_copy(update={"reason": reason})
    seen: dict[str, list[Pairing]] = {case: [] for case in (QUIET, *NEIGHBOURS) if case not in unavailable}
    for number in range(count):
        for case, mine in seen.items():
            if setting.over:
                return
            mine.append(_neighbour_session(setting, case, number))
            if case != QUIET:
                # One busy core affects every session, unless there are free cores that it may run on.
                must_notice = case == PINNED or others < 1.0 / MAX_NEIGHBOUR_LOAD
                yield verdicts.neighbour(
                    _neighbour_row(case),
                    seen[QUIET],
                    mine,
                    count,
                    must_notice=must_notice,
                    ratio_decides=case != PINNED,
                )


def _unavailable_cases(setting: Setting, others: int) -> Iterator[tuple[str, str]]:
    """Yield cases that are impossible on this machine or with these threads, and why."""
    if setting.cores is None:
        yield CHOSEN, NOT_PINNABLE
        yield PINNED, NOT_PINNABLE
    elif others < 1:
        yield CHOSEN, NO_FREE_CORE
    if others < 1:
        yield ANY, NO_FREE_CORE


def _neighbour_session(setting: Setting, case: str, number: int) -> Pairing:
    jobs = [_job(setting, precision, precision) for precision in PRECISIONS]
    if case == QUIET:
        return run_session(setting, case, jobs, None, seed=number)
    # The cores that the session chooses when all are quiet, as they were when this run began.
    loaded = setting.cores[-1:] if setting.cores and case != ANY else None
    with busy(loaded):
        return run_session(setting, case, jobs, setting.cores if case == PINNED else None, seed=number)


@contextmanager
def busy(cores: Sequence[int] | None) -> Iterator[None]:
    """Run a process that keeps one core loaded, pinned to ``cores`` or free to move."""
    with pinned_to(cores):
        process = subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _job(setting: Setting, key: str, precision: str, slowed: float = 0.0) -> Job:
    folder = setting.files.exported[precision]
    return Job(key, folder, None, setting.placement, setting.batch, setting.length, delay=slowed)


def _half(sessions: int) -> int:
    return max(1, sessions // 2)
