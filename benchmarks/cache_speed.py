"""`python -m benchmarks.cache_speed`: time saved by caching a teacher's outputs between epochs.

Random BERTs of 12 layers teach random ones of 3 on random rows of 64 tokens. A training without a cache and one of two
epochs with one take turns in one process. Reported are seconds an update: without a cache, in the first epoch, which
writes the cache, and in the second, which reads it. With one thread CPU time is measured, which does not include
waiting for a slow disk.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from benchmarks.report_store import positive
from benchmarks.timed_updates import MINILM, TASK, RandomRows, bert, clock_of, trained
from compress.console import Console
from compress.recipe.distill_schema import Distill
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.teacher_cache.cache import make_teacher_cache

BATCH, LENGTH, WARM = 32, 64, 1
TEACHER, STUDENT = 12, 3
BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
LOGITS = {"soft_label": 1.0}
LAYERS = {**LOGITS, "hidden_state": 1.0, "attention": 1.0}
COLUMNS = ("teacher", "losses", "no cache", "first epoch", "second", "times faster", "first, relative to no cache")


@dataclass(frozen=True)
class Case:
    """One training."""

    width: Mapping[str, int]
    precision: str
    losses: Mapping[str, float]

    @property
    def name(self) -> tuple[str, str]:
        """The teacher and the losses, for the table."""
        return f"{self.width['hidden_size']} wide, {self.precision}", ", ".join(self.losses)


def cases(widths: Sequence[tuple[Mapping[str, int], str]]) -> Iterator[Case]:
    """Yield cases with logits alone, and with layers too."""
    for width, precision in widths:
        for losses in (LOGITS, LAYERS):
            yield Case(width, precision, losses)


ALL = tuple(cases([(MINILM, "fp32"), (MINILM, "bf16"), (BASE, "bf16")]))
TRIAL = tuple(cases([(SMALL, "fp32")]))


def measure(case: Case, updates: int, rounds: int) -> list[float]:
    """Return mean seconds of an update: without a cache, in the first epoch, in the second."""
    times: tuple[list[float], list[float], list[float]] = [], [], []
    for number in range(rounds):
        for cached in (False, True) if number % 2 == 0 else (True, False):
            seconds = _turn(case, updates, cached)
            if cached:
                times[1].extend(seconds[WARM : updates + WARM])
                times[2].extend(seconds[updates + WARM :])
            else:
                times[0].extend(seconds[WARM:])
    return [statistics.fmean(seconds) for seconds in times]


def _turn(case: Case, updates: int, cached: bool) -> list[float]:
    """Return seconds of each update but the last: of two epochs with a cache, else of one with an update more."""
    shared = {
        "losses": case.losses,
        "hard_label": 0.0,
        "precision": case.precision,
        "batch_size": BATCH,
        "learning_rate": 5e-5,
    }
    settings = Distill.model_validate({**shared, "epochs": 2 if cached else 1})
    examples = RandomRows(BATCH * (updates + WARM + (0 if cached else 1)), LENGTH)
    torch.manual_seed(0)
    teacher, student = bert(TEACHER, case.width), bert(STUDENT, case.width)
    with tempfile.TemporaryDirectory() as folder:
        cache = (
            make_teacher_cache(settings, examples, TASK, Path(folder), Console("quiet"), "distill") if cached else None
        )
        objective = DistillObjective(student, teacher, settings, TASK, cache=cache)
        return trained(student, objective, examples, settings, clock_of(torch.device("cpu")))


def line(case: Case, means: Sequence[float]) -> dict[str, str]:
    """Return a case's row of the table."""
    uncached, first, second = means
    seconds = (f"{mean:.3f} s" for mean in means)
    return dict(
        zip(COLUMNS, (*case.name, *seconds, f"{uncached / second:.2f}", f"{first / uncached:.2f}"), strict=True)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache_speed", description=__doc__)
    parser.add_argument("--updates", type=positive, help="timed in each turn and epoch (default: 4)")
    parser.add_argument("--rounds", type=positive, help="turns of each (default: 2)")
    parser.add_argument("--threads", type=positive, default=1, help="with more than one, wall-clock time is measured")
    parser.add_argument("--trial", action="store_true", help="a small run that decides nothing")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    console, rows = Console(options.format), []
    timed = partial(measure, updates=options.updates or (1 if options.trial else 4), rounds=options.rounds or 2)
    for case in TRIAL if options.trial else ALL:
        rows.append(line(case, timed(case)))
        console.note(" | ".join(rows[-1].values()))
    console.table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
