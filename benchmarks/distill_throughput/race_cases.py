"""The jobs to compare, the contestants of each, and the goals of the project."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from benchmarks.distill_throughput.contestants import CONTESTANTS, OURS, Contestant


@dataclass(frozen=True)
class Lane:
    """A contestant in a race."""

    key: str
    contestant: Contestant
    cache: bool = False
    epochs: int = 1
    """Of which the last is timed; only students of one epoch are scored."""


@dataclass(frozen=True)
class Case:
    """One job for all lanes; the first lane is the one whose speed is divided by the others'."""

    key: str
    title: str
    inputs: str
    """Which rows and models `race_inputs` builds for it."""
    lanes: tuple[Lane, ...]
    goals: Mapping[str, float]
    """How many times as fast as each other lane the first one should be."""
    fp32_goals: Mapping[str, float] | None = None
    """The goals where the first one trains in fp32, if they differ."""
    share: float = 1.0
    """Share of the requested rows: slow cases take fewer."""
    scored: bool = False
    needs: str | None = None
    """A module of ours without which this is not measured."""

    @property
    def missing(self) -> str | None:
        """Why it cannot be measured; None where it can."""
        if self.needs is None or find_spec(self.needs) is not None:
            return None
        return f"not measured: {self.needs} does not exist yet"

    def rows(self, requested: int, batch: int) -> int:
        """A multiple of the batch, and two batches at least."""
        return max(2, round(requested * self.share / batch)) * batch


ALL_CONTESTANTS = tuple(Lane(name, contestant) for name, contestant in CONTESTANTS.items())
CACHED = Lane("cached", OURS, cache=True, epochs=2)
CASES = {
    case.key: case
    for case in (
        Case(
            "lengths",
            "Rows as long as they are",
            "short",
            (*ALL_CONTESTANTS, CACHED),
            {"textbrewer": 20.0, "torchdistill": 5.0, "plain": 5.0},
            {"textbrewer": 12.0, "torchdistill": 3.0, "plain": 3.0},
            scored=True,
        ),
        Case(
            "full",
            "Every row has 128 tokens: batching by length cannot help",
            "full",
            ALL_CONTESTANTS,
            {"textbrewer": 2.0, "torchdistill": 2.0, "plain": 2.0},
            share=0.25,
        ),
        Case(
            "cache",
            "A teacher of 12 layers, from the second epoch on",
            "base",
            (CACHED, Lane("uncached", OURS, epochs=2)),
            {"uncached": 2.0},
            share=0.25,
            needs="compress.train.teacher_cache.cache",
        ),
    )
}
