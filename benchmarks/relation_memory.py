"""`python -m benchmarks.relation_memory`: what do maps of relations cost, a few at a time against all at once?

The loss `relation` with all three pairs, forwards and backwards, and the same loss as one would write it: all
maps of a pair, softmax, divergence. They take turns, each time in a fresh process, which reports by how much its memory
rose at most, vectors and libraries not counted; and then what a pass takes of the processor, where memory that is freed
stays with the process, as it does in a training.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.distill_memory import status
from benchmarks.report_store import positive
from compress.console import Console
from compress.errors import CompressError
from compress.losses.distillation.relation import relation
from compress.recipe.loss_schema import Relation
from compress.train.fast_paths.malloc_tuning import keep_freed_memory

WIDTH, HEADS = 384, 12
SIDES = {"q": "query", "k": "key", "v": "value"}
PEAK_IS_NOW = Path("/proc/self/clear_refs")
"""Linux takes a 5 that is written here as: the most memory that this process had is what it has now."""
COLUMNS = ("vectors", "all at once", "a few at a time", "times less", "all, s", "a few, s", "times faster")
Vectors = Mapping[str, Tensor]
Cost = tuple[int, float]
"""Bytes and seconds of one pass forwards and backwards."""


class Case(NamedTuple):
    """Vectors of one batch, and into how many heads they are cut."""

    rows: int
    tokens: int
    heads: int
    precision: str = "fp32"

    def __str__(self) -> str:
        """In words."""
        return f"{self.rows} rows of {self.tokens} tokens, {self.heads} relation heads, {self.precision}"


ALL = (Case(32, 128, 12), Case(32, 128, 48), Case(32, 256, 48), Case(32, 128, 48, "bf16"))
TRIAL = (Case(8, 64, 12),)


def at_once(student: Vectors, teacher: Vectors, batch: Vectors, settings: Relation) -> Tensor:
    """All maps of a pair together, as one would write it; every token is real, so nothing is masked."""
    losses, heads = [], settings.heads or HEADS
    for pair in settings.pairs:
        a, b = (SIDES[letter] for letter in pair)
        ours, theirs = (_scores(each[a], each[b], heads).log_softmax(dim=-1) for each in (student, teacher))
        losses.append(F.kl_div(ours, theirs, reduction="none", log_target=True).sum(dim=-1).mean())
    return torch.stack(losses).mean()


def _scores(looking: Tensor, looked_at: Tensor, heads: int) -> Tensor:
    rows, _, tokens, _ = looking.shape
    a, b = (each.transpose(1, 2).reshape(rows, tokens, heads, -1).transpose(1, 2) for each in (looking, looked_at))
    scores: Tensor = (a @ b.transpose(-1, -2)).float() * a.shape[-1] ** -0.5
    return scores


WAYS: Mapping[str, Callable[..., Tensor]] = {"at once": at_once, "a few": relation}


def random_inputs(case: Case) -> tuple[Vectors, Vectors, Vectors]:
    """The student's and the teacher's vectors, and a batch without padding."""
    torch.manual_seed(0)
    kind = torch.bfloat16 if case.precision == "bf16" else torch.float32
    shape = case.rows, HEADS, case.tokens, WIDTH // HEADS
    student, teacher = (
        {side: torch.randn(shape, dtype=kind, requires_grad=learns) for side in SIDES.values()}
        for learns in (True, False)
    )
    real = torch.ones(case.rows, case.tokens, dtype=torch.long)
    return student, teacher, {"input_ids": real, "attention_mask": real}


def cost(case: Case, way: str) -> Cost:
    """In a process of its own: how far memory rises in a first pass, and what a third one takes."""
    torch.set_num_threads(1)
    settings = Relation(heads=case.heads)
    forth_and_back(way, random_inputs(case._replace(rows=2, tokens=8)), settings)  # what libraries set up once
    vectors = random_inputs(case)
    PEAK_IS_NOW.write_text("5", encoding="ascii")
    before = status("VmRSS")
    forth_and_back(way, vectors, settings)
    peak = status("VmHWM") - before
    with keep_freed_memory():
        forth_and_back(way, vectors, settings)
        start = time.process_time()
        forth_and_back(way, vectors, settings)
        return peak, time.process_time() - start


def forth_and_back(way: str, vectors: tuple[Vectors, Vectors, Vectors], settings: Relation) -> None:
    """The loss and its gradients."""
    loss = WAYS[way](*vectors, settings)
    torch.autograd.grad(loss, list(vectors[0].values()))


def line(case: Case, whole: Sequence[Cost], few: Sequence[Cost]) -> dict[str, str]:
    """A case's row of the table."""
    sizes = [max(size for size, _ in found) / 2**20 for found in (whole, few)]
    seconds = [statistics.median(taken for _, taken in found) for found in (whole, few)]
    memory = *(f"{each:,.0f} MiB" for each in sizes), f"{sizes[0] / sizes[1]:.1f}"
    times = *(f"{each:.2f}" for each in seconds), f"{seconds[0] / seconds[1]:.2f}"
    return dict(zip(COLUMNS, (str(case), *memory, *times), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relation_memory", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=3, help="turns of each (default: 3)")
    parser.add_argument("--trial", action="store_true", help="in small: shows that it runs, decides nothing")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    given = parser.parse_args(arguments)
    console, rows = Console(given.format), []
    if not PEAK_IS_NOW.is_file():
        console.error(CompressError("only Linux reports the most memory that a process had."))
        return CompressError.exit_code
    forks = get_context("forkserver")
    forks.set_forkserver_preload(
        ["compress.train.fast_paths.malloc_tuning", "compress.losses.distillation.relation"]
    )  # libraries are read once
    with ProcessPoolExecutor(1, forks, max_tasks_per_child=1) as fresh:
        for case in TRIAL if given.trial else ALL:
            found: dict[str, list[Cost]] = {way: [] for way in WAYS}
            for number in range(1 if given.trial else given.rounds):
                for way in sorted(WAYS, reverse=number % 2 > 0):
                    found[way].append(fresh.submit(cost, case, way).result())
            rows.append(line(case, *found.values()))
            console.note(" | ".join(rows[-1].values()))
    console.table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
