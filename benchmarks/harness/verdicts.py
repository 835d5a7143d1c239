"""Turns and sessions to results and verdicts. Pure functions of numbers."""

from collections.abc import Sequence
from statistics import median

from benchmarks.harness.harness_results import Pairing, Row, Turn

CLOSE = 0.05
"""Largest difference from another tool's median, and largest change of a ratio with a busy neighbour."""
FEWEST_TURNS = 3
TRUSTED = (19, 20)
"""Of so many sessions of identical twins, so many must hold 1.00: what a 95 % interval promises."""
DISTINGUISHED = (9, 10)
"""Of so many sessions with a slowed twin, so many must show it."""


def compare_with_tool(row: Row, turns: Sequence[Turn], planned: int) -> Row:
    """The harness compared with another tool: the median over the turns of the ratio within a turn."""
    if not turns:
        return row
    ratios = sorted(turn.ratio for turn in turns)
    apart = median(ratios) - 1.0
    ours, theirs = median(turn.ours for turn in turns), median(turn.theirs for turn in turns)
    enough = len(turns) >= min(FEWEST_TURNS, planned)
    return row.model_copy(
        update={
            "turns": tuple(turns),
            "result": f"{ours:.2f} ms, theirs {theirs:.2f} ms: {apart:+.1%} "
            f"(turns from {ratios[0] - 1.0:+.1%} to {ratios[-1] - 1.0:+.1%})",
            "passed": abs(apart) <= CLOSE if enough else None,
            "reason": None if enough else f"{len(turns)} of {planned} turns",
        }
    )


def needed(share: tuple[int, int], planned: int) -> int:
    """How many of ``planned`` sessions must succeed, rounded up: 19 of 20, 2 of 2."""
    good, of = share
    return -(-good * planned // of)


def count_sessions(
    row: Row, sessions: Sequence[Pairing], good: Sequence[bool], least: int, planned: int, verb: str
) -> Row:
    """Count the successful sessions; decided as soon as no further session could change the outcome."""
    if not sessions:
        return row
    hits, misses = sum(good), len(good) - sum(good)
    passed = True if hits >= least else (False if misses > planned - least else None)
    return row.model_copy(
        update={
            "sessions": tuple(sessions),
            "result": f"{hits} of {len(sessions)} {verb}; {_spread(sessions)}",
            "passed": passed,
            "reason": None if passed is not None else f"{len(sessions)} of {planned} sessions",
        }
    )


def twins(row: Row, sessions: Sequence[Pairing], planned: int) -> Row:
    """A model against itself: the interval must hold 1.00. A session without a ratio counts against the harness."""
    good = [one.ratio is not None and one.ratio.low <= 1.0 <= one.ratio.high for one in sessions]
    return count_sessions(row, sessions, good, needed(TRUSTED, planned), planned, "hold 1.00")


def slowed(row: Row, sessions: Sequence[Pairing], planned: int) -> Row:
    """A model against itself slowed: the interval must lie above 1."""
    good = [one.ratio is not None and one.ratio.low > 1.0 for one in sessions]
    return count_sessions(row, sessions, good, needed(DISTINGUISHED, planned), planned, "distinguished")


def _spread(sessions: Sequence[Pairing]) -> str:
    """What the ratios were, how wide their intervals, and how often the session warned."""
    ratios = [one.ratio for one in sessions if one.ratio is not None]
    warned = sum(one.unstable for one in sessions)
    marked = f"{warned} marked unstable"
    if not ratios:
        return f"no ratio in any; {marked}"
    values = sorted(ratio.value for ratio in ratios)
    half = median((ratio.high - ratio.low) / 2.0 for ratio in ratios)
    return f"ratios {values[0]:.3f} to {values[-1]:.3f}, median {median(values):.3f} ± {half:.3f}; {marked}"


def neighbour(
    row: Row,
    quiet: Sequence[Pairing],
    busy: Sequence[Pairing],
    planned: int,
    *,
    must_notice: bool,
    ratio_decides: bool = True,
) -> Row:
    """A busy neighbour: the ratio holds, affected sessions are marked unstable, and those without one are not.

    Args:
        row: to be filled.
        quiet: sessions without a neighbour.
        busy: sessions with one.
        planned: how many of each.
        must_notice: whether it loads the worker's cores or others wherever it runs, so that every session must be
            marked; otherwise only those in which it slowed a model.
        ratio_decides: whether a ratio that moves makes the row fail.
    """
    calm = [one for one in quiet if one.ratio is not None]
    loud = [one for one in busy if one.ratio is not None]
    if not calm or not loud:
        message = next((reason for one in (*quiet, *busy) for reason in one.reasons), None)
        return (
            row if not busy else row.model_copy(update={"sessions": (*quiet, *busy), "reason": message or row.reason})
        )
    change = median(_ratio(one) for one in loud) / median(_ratio(one) for one in calm) - 1.0
    typical = {key: median(one.p50[key] for one in calm) for key in calm[0].p50}
    slowest = [slowdown(one, typical) for one in loud]
    to_notice = [one for one, much in zip(loud, slowest, strict=True) if must_notice or much >= CLOSE]
    marked = sum(one.unstable for one in quiet)
    good = (
        (abs(change) < CLOSE or not ratio_decides)
        and all(one.unstable for one in to_notice)
        and 2 * marked < len(quiet)
        and len(loud) == len(busy)
    )
    done = len(busy) >= planned and len(quiet) >= planned
    return row.model_copy(
        update={
            "sessions": (*quiet, *busy),
            "result": f"the ratio moved by {change:+.1%}; calls up to {max(slowest):+.0%} slower{_taken(loud)}; "
            f"{_noticed(to_notice, len(busy))}; {marked} of {len(quiet)} quiet ones marked unstable",
            "passed": good if done else None,
            "reason": None if done else f"{len(busy)} of {planned} sessions",
        }
    )


def _taken(sessions: Sequence[Pairing]) -> str:
    loads = [one.other_load for one in sessions if one.other_load is not None]
    return f", others had up to {max(loads):.0%} of the cores" if loads else ""


def _noticed(to_notice: Sequence[Pairing], sessions: int) -> str:
    if not to_notice:
        return f"avoided in all of {sessions} sessions"
    return f"noticed in {sum(one.unstable for one in to_notice)} of {len(to_notice)} affected sessions"


def slowdown(session: Pairing, typical: dict[str, float]) -> float:
    """Return the largest relative slowdown of a model of the session against its typical time."""
    return max(session.p50[key] / typical[key] for key in typical) - 1.0


def _ratio(session: Pairing) -> float:
    assert session.ratio is not None
    return session.ratio.value
