"""`python -m benchmarks.relation_memory`: memory and time of the loss `relation`, chunked and with all maps at once.

Compares the loss `relation`, which computes a few maps at a time, with a direct implementation: all maps of a pair,
softmax, divergence. Both run forward and backward with all three pairs, in turns, each time in a fresh process.
Reported are the peak memory without inputs and libraries, and the CPU time of a pass with freed memory kept, as in
training.
"""

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
RESET_PEAK = Path("/proc/self/clear_refs")
"""Writing 5 to this file of Linux resets the process's peak memory to its current memory."""
COLUMNS = ("inputs", "all maps", "chunked", "times less", "all maps, s", "chunked, s", "times faster")
Vectors = Mapping[str, Tensor]
Cost = tuple[int, float]
"""Peak bytes and CPU seconds of one forward and backward pass."""


class Case(NamedTuple):
    """The shape of one batch and its number of relation heads."""

    rows: int
    tokens: int
    heads: int
    precision: str = "fp32"

    def __str__(self) -> str:
        """Describe the case."""
        return f"{self.rows} rows of {self.tokens} tokens, {self.heads} relation heads, {self.precision}"


ALL = (Case(32, 128, 12), Case(32, 128, 48), Case(32, 256, 48), Case(32, 128, 48, "bf16"))
TRIAL = (Case(8, 64, 12),)


def all_maps(student: Vectors, teacher: Vectors, batch: Vectors, settings: Relation) -> Tensor:
    """The direct implementation, with all maps of a pair at once; there is no padding, so nothing is masked."""
    losses, heads = [], settings.heads or HEADS
    for pair in settings.pairs:
        a, b = (SIDES[letter] for letter in pair)
        ours, theirs = (_scores(each[a], each[b], heads).log_softmax(dim=-1) for each in (student, teacher))
        losses.append(F.kl_div(ours, theirs, reduction="none", log_target=True).sum(dim=-1).mean())
    return torch.stack(losses).mean()


def _scores(queries: Tensor, keys: Tensor, heads: int) -> Tensor:
    rows, _, tokens, _ = queries.shape
    a, b = (each.transpose(1, 2).reshape(rows, tokens, heads, -1).transpose(1, 2) for each in (queries, keys))
    scores: Tensor = (a @ b.transpose(-1, -2)).float() * a.shape[-1] ** -0.5
    return scores


WAYS: Mapping[str, Callable[..., Tensor]] = {"all maps": all_maps, "chunked": relation}


def random_inputs(case: Case) -> tuple[Vectors, Vectors, Vectors]:
    """Return the student's and the teacher's vectors, and a batch without padding."""
    torch.manual_seed(0)
    kind = torch.bfloat16 if case.precision == "bf16" else torch.float32
    shape = case.rows, HEADS, case.tokens, WIDTH // HEADS
    student, teacher = (
        {side: torch.randn(shape, dtype=kind, requires_grad=requires_grad) for side in SIDES.values()}
        for requires_grad in (True, False)
    )
    real = torch.ones(case.rows, case.tokens, dtype=torch.long)
    return student, teacher, {"input_ids": real, "attention_mask": real}


def cost(case: Case, way: str) -> Cost:
    """Return the peak memory of a first pass and the time of a third; called in a fresh process."""
    torch.set_num_threads(1)
    settings = Relation(heads=case.heads)
    forward_backward(
        way, random_inputs(case._replace(rows=2, tokens=8)), settings
    )  # one-time initialisation of libraries
    vectors = random_inputs(case)
    RESET_PEAK.write_text("5", encoding="ascii")
    before = status("VmRSS")
    forward_backward(way, vectors, settings)
    peak = status("VmHWM") - before
    with keep_freed_memory():
        forward_backward(way, vectors, settings)
        start = time.process_time()
        forward_backward(way, vectors, settings)
        return peak, time.process_time() - start


def forward_backward(way: str, vectors: tuple[Vectors, Vectors, Vectors], settings: Relation) -> None:
    """Compute the loss and its gradients."""
    loss = WAYS[way](*vectors, settings)
    torch.autograd.grad(loss, list(vectors[0].values()))


def table_row(case: Case, full: Sequence[Cost], chunked: Sequence[Cost]) -> dict[str, str]:
    """Return the table row of a case."""
    sizes = [max(size for size, _ in costs) / 2**20 for costs in (full, chunked)]
    seconds = [statistics.median(taken for _, taken in costs) for costs in (full, chunked)]
    memory = *(f"{each:,.0f} MiB" for each in sizes), f"{sizes[0] / sizes[1]:.1f}"
    times = *(f"{each:.2f}" for each in seconds), f"{seconds[0] / seconds[1]:.2f}"
    return dict(zip(COLUMNS, (str(case), *memory, *times), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relation_memory", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=3, help="turns of each (default: 3)")
    parser.add_argument("--trial", action="store_true", help="a small run that decides nothing")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    options = parser.parse_args(arguments)
    console, rows = Console(options.format), []
    if not RESET_PEAK.is_file():
        console.error(CompressError("only Linux reports the peak memory of a process."))
        return CompressError.exit_code
    forks = get_context("forkserver")
    forks.set_forkserver_preload(
        ["compress.train.fast_paths.malloc_tuning", "compress.losses.distillation.relation"]
    )  # imported once
    with ProcessPoolExecutor(1, forks, max_tasks_per_child=1) as fresh:
        for case in TRIAL if options.trial else ALL:
            costs: dict[str, list[Cost]] = {way: [] for way in WAYS}
            for number in range(1 if options.trial else options.rounds):
                for way in sorted(WAYS, reverse=number % 2 > 0):
                    costs[way].append(fresh.submit(cost, case, way).result())
            rows.append(table_row(case, *costs.values()))
            console.note(" | ".join(rows[-1].values()))
    console.table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
