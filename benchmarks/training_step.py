"""`python -m benchmarks.training_step`: the duration of an update, and the share of matrix products in it.

Ours is compared with a plain loop in bf16: autocast, torch's attention, a dense gradient of the word vectors. Both run
in turns in one process on the same random rows. A share of 50 % means that the update took twice as long as its
matrix products take at the rate of one large product, measured between the turns; what our loop pads batches by to
multiples of a width is not counted as work. On a CPU with one thread the clock is the process's own time, which others
on the machine hardly change.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel

from benchmarks.timed_updates import MAX_TOKENS, MINILM, TASK, RandomRows, Timed, bert, clock_of, trained
from compress.console import Console
from compress.measure.resources.footprint import flops
from compress.models.encoder_parts import shape_of
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Training
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.objective import Examples, Objective, TaskObjective

BATCH, SHORT, LONG = 32, 25, MAX_TOKENS
SIDES = {"cpu": 2048, "cuda": 8192}
"""Of the large product, whose rate is the limit."""
WARM = 2
RATE = 5e-5
LOSSES = {"soft_label": 1.0, "hidden_state": 1.0, "attention": 1.0, "hard_label": 0.0}


@dataclass(frozen=True)
class Case:
    """One kind of update."""

    name: str
    length: int
    layers: int
    teacher_layers: int = 0
    """Layers of the teacher; 0 without a teacher."""
    width: tuple[tuple[str, int], ...] = tuple(MINILM.items())
    rows: int = BATCH


def cpu_cases(*lengths: int) -> tuple[Case, ...]:
    """Return updates of MiniLM on texts of these lengths."""
    return tuple(
        Case(f"{name}, {length} tokens", length, layers, teacher_layers)
        for name, layers, teacher_layers in (("fine-tuning MiniLM", 6, 0), ("MiniLM to 3 layers", 3, 6))
        for length in lengths
    )


CPU = cpu_cases(SHORT, LONG)
CUDA = tuple(
    Case(f"BERT-base to 6 layers, 128 tokens, {rows} rows", LONG, 6, 12, (), rows)
    for rows in (BATCH, 4 * BATCH, 16 * BATCH)
)


class UpdateCost(NamedTuple):
    """Of one case: seconds an update (plain loop, ours), operations and tokens an update, operations a second."""

    plain: float
    ours: float
    work: float
    tokens: float
    rate: float


def measure(case: Case, updates: int, rounds: int, device: torch.device, compiled: bool) -> UpdateCost:
    """Time both loops in turns, in the order plain, ours, ours, plain."""
    clock = clock_of(device)
    examples = RandomRows(case.rows * (updates + WARM), case.length, even=case.length == LONG)
    extra = {"batch_size": case.rows, "learning_rate": RATE, **({"compile": True} if compiled else {})}
    settings = (
        Distill(epochs=1, precision="bf16", **LOSSES, **extra)
        if case.teacher_layers
        else Training(epochs=1, precision="bf16", **extra)
    )
    taken: dict[str, list[float]] = {"plain": [], "ours": []}
    rates = []
    for number in range(rounds):
        rates.append(_rate(device, clock))
        for loop in ("plain", "ours") if number % 2 == 0 else ("ours", "plain"):
            model, objective = build(case, settings)
            if loop == "ours":
                result = trained(model, objective, examples, settings, clock)
            else:
                result = _plain_updates(model, Timed(objective, clock), examples, settings, device)
            taken[loop] += result[WARM:]
    model, objective = build(case, settings)
    tokens = [
        examples.batch(batch)["input_ids"].size
        for update in range(WARM, updates + WARM)
        for batch in UpdateSchedule(examples.lengths, settings, 0).batches(update)
    ]
    work = statistics.fmean(
        _work(model, objective, examples, settings, update) for update in range(WARM, updates + WARM)
    )
    plain, ours = (statistics.fmean(taken[loop]) for loop in ("plain", "ours"))
    return UpdateCost(plain, ours, work, statistics.fmean(tokens), max(rates))


def _plain_updates(
    model: PreTrainedModel, objective: Timed, examples: Examples, settings: Training, device: torch.device
) -> list[float]:
    """Seconds of each update of a plain loop under autocast but the last."""
    nn.Module.to(model, device).train()
    learning = list(model.parameters())
    optimizer = torch.optim.AdamW(learning, lr=RATE, fused=True)
    plan = UpdateSchedule(examples.lengths, settings, 0)
    for update in range(plan.total):
        objective.begin(update / plan.total)
        (indices,) = plan.batches(update)
        batch = {name: torch.from_numpy(array).to(device) for name, array in examples.batch(indices).items()}
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            losses = objective(model, batch)
        torch.stack([loss.float() for loss in losses.values()]).sum().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(learning, 1.0)
        optimizer.step()
    return objective.taken


def build(case: Case, settings: Training) -> tuple[PreTrainedModel, Objective]:
    """Return a random model with its objective."""
    torch.manual_seed(0)
    model = bert(case.layers, dict(case.width))
    if not isinstance(settings, Distill):
        return model, TaskObjective(TASK)
    return model, DistillObjective(model, bert(case.teacher_layers, dict(case.width)), settings, TASK)


def _work(model: PreTrainedModel, objective: Objective, examples: Examples, settings: Training, update: int) -> float:
    """Operations of an update's matrix products: forward once, backward twice that, and once through each teacher."""
    (indices,) = UpdateSchedule(examples.lengths, settings, 0).batches(update)
    rows, length = examples.batch(indices)["input_ids"].shape
    through = [flops(shape_of(each), length, rows) or 0 for each in (model, *objective.teachers())]
    return 3 * through[0] + sum(through[1:])


def _rate(device: torch.device, clock: Callable[[], float]) -> float:
    """Operations a second of a large product in bf16: the best of some."""
    side = SIDES[device.type]
    matrix, best = torch.randn(side, side, device=device, dtype=torch.bfloat16), 0.0
    for _ in range(5):
        began = clock()
        _ = matrix @ matrix
        best = max(best, 2 * side**3 / (clock() - began))
    return best


def table(cases: Sequence[tuple[Case, UpdateCost]]) -> list[tuple[str, ...]]:
    """Return the cells of the table, a row a case."""
    rows = []
    for case, result in cases:
        shares = [result.work / seconds / result.rate for seconds in (result.plain, result.ours)]
        rows.append(
            (
                case.name,
                *(f"{1000 * seconds:.1f} ms" for seconds in (result.plain, result.ours)),
                f"{result.plain / result.ours:.2f}",
                *(f"{share:.0%}" for share in shares),
                f"{result.tokens / result.ours:,.0f}",
                f"{result.rate / 1e9:,.0f}",
            )
        )
    return rows


COLUMNS = ("update", "plain", "ours", "times faster", "share, plain", "share, ours", "tokens a second", "GFLOP/s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_step", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU; with more than one the clock is the wall's")
    parser.add_argument("--updates", type=int, default=10, help="timed in each turn, after two that are not")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--compile", action="store_true", help="ours with torch.compile")
    options = parser.parse_args(arguments)
    if (options.device == "cuda") != torch.cuda.is_available():
        mismatch = (
            "has a GPU, which trainings take: --device cuda, or hide it" if options.device == "cpu" else "has no GPU"
        )
        parser.error(f"this machine {mismatch}")
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    console, results = Console(), []
    for case in CUDA if device.type == "cuda" else CPU:
        if options.only in case.name:
            results.append((case, measure(case, options.updates, options.rounds, device, options.compile)))
            console.note(" | ".join(table(results[-1:])[0]))
    console.table([dict(zip(COLUMNS, row, strict=True)) for row in table(results)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
