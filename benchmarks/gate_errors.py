"""`python -m benchmarks.gate_errors`: how often the winner of many candidates has lost more than the gate allows.

Searches are simulated: every candidate answers each select row as the teacher does, but for some that it gets wrong or
right instead. Its true loss is the one it has on rows without end. The fastest that passes wins, and the faster a
candidate, the more it truly loses: the worst case, in which choosing always favours what was lucky.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report_store import positive
from compress.console import Console
from compress.measure.quality.quality_result import TWO_SIDED, Changed, Difference, Quality
from compress.measure.result_base import Score
from compress.select.gate import gate
from compress.select.ledger import Outcome, Rules

ALLOWED = 0.01
GAINED = 0.015
"""Share of rows that a candidate gets right and the teacher wrong."""
MOST_LOST = 3 * ALLOWED
"""What the fastest candidate truly loses; the slowest loses nothing."""
CORRELATION = 0.5
"""Share of a candidate's differing rows that are those of all candidates, which are parts of one model."""


def differences(losses: NDArray[np.float64], rows: int, random: np.random.Generator, gained: float) -> NDArray[np.int8]:
    """Return by how much each candidate's answer to each row is better than the teacher's: 1, 0 or -1."""
    shared, own = random.random(rows), random.random((len(losses), rows))
    drawn = np.where(random.random((len(losses), rows)) < CORRELATION, shared, own)
    wrong = gained + losses[:, None]
    return (drawn > 1 - gained).astype(np.int8) - (drawn < wrong).astype(np.int8)


def outcomes(
    losses: NDArray[np.float64], rows: int, random: np.random.Generator, *, strict: bool, gained: float
) -> list[Outcome]:
    """Return the gate's outcome for candidates of these true losses, all of them judged together."""
    judged, rules = list[Outcome](), Rules(max_drop=ALLOWED, strict=strict)
    for each in differences(losses, rows, random, gained):
        value, half = float(each.mean()), TWO_SIDED * float(each.std()) / rows**0.5
        ends = {"value": value, "low": value - half, "high": value + half}
        changed = Changed(lost=int((each < 0).sum()), won=int((each > 0).sum()), rows=rows)
        versus = Difference(**ends, p_value=1.0, test="mcnemar", changed=changed)
        whole = Score(value=0.9, low=0.9, high=0.9)
        facts: dict[str, Any] = {"metric": "accuracy", "larger_is_better": True, "primary": whole, "scores": {}}
        select = Quality(role="select", rows=rows, versus_teacher=versus, **facts)
        judged.append(gate(rules, select, {}, quantized=False, compared=len(losses)).outcome)
    return judged


def simulate(candidates: int, rows: int, searches: int, *, strict: bool, gained: float = GAINED) -> dict[str, Any]:
    """Return what happened in simulated searches of so many candidates, of which each is right on a share of rows anew.

    How many had a winner, how many of these winners truly lost more than is allowed, and how many points more; and, in
    searches all of whose candidates lose just what is allowed, how often any passed.
    """
    random = np.random.default_rng([candidates, rows, strict])
    spread, level = np.linspace(MOST_LOST, 0.0, candidates), np.full(candidates, ALLOWED)
    excess, any_passed = list[float](), 0
    for _ in range(searches):
        passed = outcomes(spread, rows, random, strict=strict, gained=gained)
        excess += [spread[passed.index("passed")] - ALLOWED] if "passed" in passed else []
        any_passed += "passed" in outcomes(level, rows, random, strict=strict, gained=gained)
    over = [each for each in excess if each > 1e-9]
    return {
        "candidates": candidates,
        "select rows": rows,
        "gate": "strict" if strict else "default",
        "with a winner": round(len(excess) / searches, 3),
        "winner lost more": round(len(over) / max(1, len(excess)), 3),
        "points more": round(100 * float(np.mean(over)), 2) if over else 0.0,
        "any at the limit passed": round(any_passed / searches, 3),
    }


def simulations(searches: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each size of a search and of select."""
    for strict in (False, True):
        for rows in (500, 2000, 8000):
            for candidates in (5, 10, 20, 40):
                yield simulate(candidates, rows, searches, strict=strict)


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate_errors", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--searches", type=positive, default=400, help="simulated for each row (default: 400)")
    parser.add_argument("--format", choices=("human", "json"), default="human")
    options = parser.parse_args(arguments)
    console = Console(options.format)
    console.table([*simulations(options.searches)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
