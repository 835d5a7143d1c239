"""`python -m benchmarks.cache_speed`: what does it save that a teacher's words stay on disk between epochs?

Random BERTs of 12 layers teach random ones of 3 on drawn rows of 64 pieces. A training that keeps nothing and one of
two epochs that keeps all take turns in one process. Told are seconds an update: keeping nothing, in the first epoch,
which asks and writes, and in the second one, which reads. With one thread the clock is the process's own time: what a
slow disk would have it wait for is not in it.
"""

from __future__ import annotations

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
from benchmarks.timed_updates import MINILM, TASK, Drawn, bert, clock_of, trained
from compress.console import Console
from compress.recipe.training_schema import Distill
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.teacher_cache.cache import make_teacher_cache

BATCH, LENGTH, WARM = 32, 64, 1
TEACHER, STUDENT = 12, 3
BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
ANSWERS = {"soft_label": 1.0}
LAYERS = {**ANSWERS, "hidden_state": 1.0, "attention": 1.0}
COLUMNS = ("teacher", "losses", "keeping nothing", "first epoch", "second", "times faster", "first, to nothing kept")


@dataclass(frozen=True)
class Case:
    """One training."""

    width: Mapping[str, int]
    precision: str
    losses: Mapping[str, float]

    @property
    def name(self) -> tuple[str, str]:
        """The teacher and the losses in words."""
        return f"{self.width['hidden_size']} wide, {self.precision}", ", ".join(self.losses)


def cases(widths: Sequence[tuple[Mapping[str, int], str]]) -> Iterator[Case]:
    """Answers alone, and layers with them."""
    for width, precision in widths:
        for losses in (ANSWERS, LAYERS):
            yield Case(width, precision, losses)


ALL = tuple(cases([(MINILM, "fp32"), (MINILM, "bf16"), (BASE, "bf16")]))
TRIAL = tuple(cases([(SMALL, "fp32")]))


def measure(case: Case, updates: int, rounds: int) -> list[float]:
    """Mean seconds of an update: keeping nothing, in the first epoch, in the second."""
    taken: tuple[list[float], list[float], list[float]] = [], [], []
    for number in range(rounds):
        for keeps in (False, True) if number % 2 == 0 else (True, False):
            found = _turn(case, updates, keeps)
            if keeps:
                taken[1].extend(found[WARM : updates + WARM])
                taken[2].extend(found[updates + WARM :])
            else:
                taken[0].extend(found[WARM:])
    return [statistics.fmean(seconds) for seconds in taken]


def _turn(case: Case, updates: int, keeps: bool) -> list[float]:
    """Seconds of each update but the last: of two epochs where words are kept, else of one with an update more."""
    told = {"losses": case.losses, "hard_label": 0.0, "precision": case.precision, "batch_size": BATCH}
    settings = Distill.model_validate({**told, "epochs": 2 if keeps else 1})
    examples = Drawn(BATCH * (updates + WARM + (0 if keeps else 1)), LENGTH)
    torch.manual_seed(0)
    teacher, student = bert(TEACHER, case.width), bert(STUDENT, case.width)
    with tempfile.TemporaryDirectory() as folder:
        keep = (
            make_teacher_cache(settings, examples, TASK, Path(folder), Console("quiet"), "distill") if keeps else None
        )
        objective = DistillObjective(student, teacher, settings, TASK, cache=keep)
        return trained(student, objective, examples, settings, clock_of(torch.device("cpu")))


def line(case: Case, found: Sequence[float]) -> dict[str, str]:
    """A case's row of the table."""
    nothing, first, second = found
    seconds = (f"{each:.3f} s" for each in found)
    return dict(zip(COLUMNS, (*case.name, *seconds, f"{nothing / second:.2f}", f"{first / nothing:.2f}"), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache_speed", description=__doc__)
    parser.add_argument("--updates", type=positive, help="timed in each turn and epoch (default: 4)")
    parser.add_argument("--rounds", type=positive, help="turns of each (default: 2)")
    parser.add_argument("--threads", type=positive, default=1, help="with more than one the clock is the wall's")
    parser.add_argument("--trial", action="store_true", help="in small: shows that it runs, decides nothing")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    console, rows = Console(given.format), []
    timed = partial(measure, updates=given.updates or (1 if given.trial else 4), rounds=given.rounds or 2)
    for case in TRIAL if given.trial else ALL:
        rows.append(line(case, timed(case)))
        console.note(" | ".join(rows[-1].values()))
    console.table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
