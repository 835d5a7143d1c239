"""`python -m benchmarks.second_thread`: the gain of further threads in a training and in a product of its shapes.

The same updates run with one thread and with several, in turns in one process, and a product of the shapes of the
feed-forward layer between the turns.
"""

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from benchmarks.report_store import positive
from benchmarks.timed_updates import MINILM, RandomRows, trained
from benchmarks.training_step import LONG, LOSSES, RATE, SHORT, WARM, Case, build, cpu_cases
from compress.console import Console
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Training

SIZES = MINILM["hidden_size"], MINILM["intermediate_size"]
PRODUCTS = 20
CPU = cpu_cases(14, SHORT, LONG)


def measure(
    case: Case, threads: int, updates: int, rounds: int, precision: str, middle: Callable[[Sequence[float]], float]
) -> dict[str, float]:
    """Return rows a second with one thread and with ``threads``, and how many times as fast updates and products are.

    ``middle`` makes one time of those of an update in all rounds.
    """
    examples = RandomRows(case.rows * (WARM + updates + 1), case.length, even=case.length == LONG)
    settings = {"epochs": 1, "precision": precision, "batch_size": case.rows, "learning_rate": RATE}
    training = Distill(**settings, **LOSSES) if case.teacher_layers else Training(**settings)
    seconds: dict[int, list[list[float]]] = {1: [], threads: []}
    products: dict[int, list[float]] = {1: [], threads: []}
    for number in range(rounds):
        for count in (1, threads) if number % 2 == 0 else (threads, 1):
            torch.set_num_threads(count)
            model, objective = build(case, training)
            seconds[count].append(trained(model, objective, examples, training, time.perf_counter)[WARM:])
            products[count] += _products(case, getattr(torch, {"fp32": "float32", "bf16": "bfloat16"}[precision]))
    one, several = (sum(middle(times) for times in zip(*seconds[count], strict=True)) for count in (1, threads))
    rows = case.rows * len(seconds[1][0])
    gain = middle(products[1]) / middle(products[threads])
    return {"one": rows / one, "several": rows / several, "update": one / several, "product": gain}


def _products(case: Case, dtype: torch.dtype) -> list[float]:
    """Return the seconds of some products."""
    left, right = torch.randn(case.rows * case.length, SIZES[0], dtype=dtype), torch.randn(*SIZES, dtype=dtype)
    times = []
    for _ in range(PRODUCTS):
        began = time.perf_counter()
        _ = left @ right
        times.append(time.perf_counter() - began)
    return times


@contextmanager
def busy_process(wanted: bool) -> Iterator[None]:
    """Keep a core busy within the block, if ``wanted``."""
    process = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    if wanted:
        process.start()
    try:
        yield
    finally:
        if wanted:
            process.terminate()


def _spin() -> None:
    while True:
        pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.second_thread", description=__doc__)
    parser.add_argument("--threads", type=positive, default=2)
    parser.add_argument("--updates", type=positive, default=8, help="timed in each turn, after two that are not")
    parser.add_argument("--rounds", type=positive, default=4, help="turns of each")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--busy", action="store_true", help="beside a process that keeps one core busy")
    options = parser.parse_args(arguments)
    console, rows = Console(), []
    middle = statistics.median if options.busy else min
    with busy_process(options.busy):
        for case in CPU:
            if options.only in case.name:
                cost = measure(case, options.threads, options.updates, options.rounds, options.precision, middle)
                rows.append({"update": case.name, **_row(cost, options.threads)})
                console.note(" | ".join(rows[-1].values()))
    console.table(rows)
    return 0


def _row(cost: dict[str, float], threads: int) -> dict[str, str]:
    return {
        "rows/s, 1 thread": f"{cost['one']:.1f}",
        f"{threads} threads": f"{cost['several']:.1f}",
        "times faster": f"{cost['update']:.2f}",
        "a product": f"{cost['product']:.2f}",
        "of its gain": f"{cost['update'] / cost['product']:.0%}",
    }


if __name__ == "__main__":
    sys.exit(main())
