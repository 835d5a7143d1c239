"""`python -m benchmarks.batch_widths`: what training in bf16 gains from few widths of batches, on a CPU.

oneDNN compiles a product in bf16 for each of its shapes. A student whose layers differ is trained by a teacher of equal
layers, in turns in fresh processes: with batches as wide as their longest text and as many compiled products as oneDNN
keeps by default; with more of them kept; with widths of multiples too, as the project does. The same in fp32 beside it.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import torch

from benchmarks.report_store import positive
from benchmarks.timed_updates import MINILM, TASK, RandomRows, bert, trained
from benchmarks.training_step import BATCH, RATE, SHORT
from compress.console import Console
from compress.measure.timing.process_limits import peak_memory
from compress.models.heads import head_of
from compress.models.nonuniform_models import from_config, reshape_config
from compress.recipe.distill_schema import Distill
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.fast_paths import fast_training

HEADS, FFN = (9, 12, 7, 4, 1, 3), (736, 704, 240, 48, 48, 64)
"""Of a student that was pruned from MiniLM."""


class Way(NamedTuple):
    """How products are compiled."""

    precision: str
    multiple: int
    kept: int


WAYS = {
    "bf16, 1,024 compiled products kept": Way("bf16", 1, 1024),
    "bf16, 4,096 kept": Way("bf16", 1, 4096),
    "bf16, 4,096 kept, widths of multiples of 8": Way("bf16", 8, 4096),
    "fp32": Way("fp32", 1, 4096),
}


def cost(way: Way, updates: int, threads: int) -> tuple[float, float]:
    """Return the rows a second of two epochs, and the peak memory of the process; called in a fresh one."""
    os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = str(way.kept)  # read with the first product
    fast_training.BF16_MULTIPLE = way.multiple
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    teacher = bert(len(HEADS), MINILM)
    size = teacher.config.hidden_size // teacher.config.num_attention_heads
    shape = reshape_config(teacher.config, teacher.config.hidden_size, list(zip(HEADS, FFN, strict=True)), size)
    student = from_config(head_of(teacher).model_class(type(shape)), shape)
    examples = RandomRows(BATCH * updates, SHORT, even=False)
    losses = {"soft_label": 1.0, "hidden_state": 1.0, "hard_label": 0.0}
    settings = Distill(epochs=2, precision=way.precision, batch_size=BATCH, learning_rate=RATE, **losses)
    began = time.perf_counter()
    trained(student, DistillObjective(student, teacher, settings, TASK), examples, settings, time.perf_counter)
    return 2 * BATCH * updates / (time.perf_counter() - began), peak_memory() or 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch_widths", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=2, help="turns of each (default: 2)")
    parser.add_argument("--updates", type=positive, default=112, help="of an epoch (default: 112)")
    parser.add_argument("--threads", type=positive, default=2, help="(default: 2)")
    options = parser.parse_args(arguments)
    console, costs = Console("human"), {name: list[tuple[float, float]]() for name in WAYS}
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as fresh:
        for number in range(options.rounds):
            for name in sorted(WAYS, reverse=number % 2 > 0):
                costs[name].append(fresh.submit(cost, WAYS[name], options.updates, options.threads).result())
                console.note(f"{name}: {costs[name][-1][0]:.0f} rows a second")
    console.table(
        [
            {
                "way": name,
                "rows a second": f"{statistics.median(rate for rate, _ in taken):.0f}",
                "peak memory": f"{max(peak for _, peak in taken) / 2**20:,.0f} MiB",
            }
            for name, taken in costs.items()
        ]
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
