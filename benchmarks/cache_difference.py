"""`python -m benchmarks.cache_difference`: losses from cached teacher outputs against those of a fresh pass.

A teacher's own layers 1, 3 and 5 (of six) make a student, without dropout, for two epochs: the first caches
the teacher's outputs; in the second, with other batches, each loss is computed from the cache and from a fresh pass.
Reported is the largest difference of a batch's loss, absolute and relative, and for comparison that of a fresh pass of
both models with 16 more tokens of padding.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedModel

from benchmarks.real_task import RealTask, add_teacher
from benchmarks.report_store import positive
from compress.console import Console
from compress.data.tokenizer import TextTokenizer
from compress.errors import CompressError
from compress.models import build_student, load
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.train.core.gradients import DeviceBatches, pad_width
from compress.train.core.training_data import from_rows
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.fast_paths.bf16_weights import Bf16Weights
from compress.train.fast_paths.fast_training import fast_training
from compress.train.objective import Examples, Objective
from compress.train.teacher_cache.cache import make_teacher_cache

LOSSES = {"hidden_state": 1.0, "attention": 1.0, "relation": 1.0, "soft_label": 1.0}
WIDER = 16
COLUMNS = ("precision", "loss", "mean", "largest difference", "relative", "16 more padding", "share of that")
CPU = torch.device("cpu")


class BatchLosses(list[tuple[float, float, float]]):
    """One loss of all batches: from a fresh pass, from the cache, and with more padding."""

    def cells(self) -> tuple[str, ...]:
        """Return the mean, the largest difference (absolute, relative), that with padding, and the ratio of both."""
        mean = sum(fresh for fresh, _, _ in self) / len(self)
        difference = max(abs(cached - fresh) for fresh, cached, _ in self)
        shares = [max(abs(losses[index] - losses[0]) / losses[0] for losses in self) for index in (1, 2)]
        quotient = "-" if not shares[1] else f"{shares[0] / shares[1]:.2f}"
        return f"{mean:.3g}", f"{difference:.1e}", f"{shares[0]:.1e}", f"{shares[1]:.1e}", quotient


def compare(
    teacher: PreTrainedModel, task_data: RealTask, examples: Examples, precision: str, work: Path
) -> Mapping[str, BatchLosses]:
    """Return the losses of the second of two epochs in this precision."""
    settings = Distill.model_validate(
        {"losses": LOSSES, "hard_label": 0.0, "epochs": 2, "batch_size": 32, "precision": precision}
    )
    student = build_student(teacher, Student(layers=0.5), task_data.task)
    student.train(False)
    cache = make_teacher_cache(settings, examples, task_data.task, work, Console("quiet"), "distill")
    objective = partial(DistillObjective, student, teacher, settings, task_data.task)
    fresh, cached = objective(), objective(cache=cache)
    copy = Bf16Weights(student)
    copy.refresh()
    with fast_training(student, [teacher], None, precision, CPU), torch.no_grad():
        if precision == "fp32":
            return dict(_losses(student, fresh, cached, examples, settings))
        with copy.running():
            return dict(_losses(student, fresh, cached, examples, settings))


def _losses(
    student: PreTrainedModel, fresh: Objective, cached: Objective, examples: Examples, settings: Distill
) -> Mapping[str, BatchLosses]:
    """Return the losses of the second epoch's batches, by name."""
    schedule, batches, result = (
        UpdateSchedule(examples.lengths, settings, 0),
        DeviceBatches(examples, CPU),
        defaultdict[str, BatchLosses](BatchLosses),
    )
    for update in range(schedule.total):
        (indices,) = schedule.batches(update)
        batch = batches(indices)
        for one in (cached, fresh):
            one.begin(update / schedule.total)
        from_cache = cached(student, batch)
        if update < schedule.per_epoch:
            continue
        pad_id, width = student.config.pad_token_id or 0, batch["input_ids"].shape[1] + WIDER
        wide = pad_width(batch, examples.arrays(), pad_id, width)
        computed, padded = fresh(student, batch), fresh(student, wide)
        for name, loss in computed.items():
            result[name].append((float(loss), float(from_cache[name]), float(padded[name])))
    return result


def lines(options: argparse.Namespace, console: Console, work: Path) -> Iterator[dict[str, str]]:
    """Yield a row for each loss in each precision."""
    task_data = RealTask(work, console, options.rows, trial=options.trial, teacher=options.teacher)
    teacher, rows = load(task_data.teacher), task_data.first("train", options.rows)
    examples = from_rows(rows, (), task_data.task, TextTokenizer.load(task_data.teacher), console).train
    console.note(f"{len(rows)} rows of {task_data.source}")
    for precision in ("fp32", "bf16"):
        for name, losses in compare(teacher, task_data, examples, precision, work / precision).items():
            yield dict(zip(COLUMNS, (precision, name, *losses.cells()), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache_difference", description=__doc__)
    add_teacher(parser)
    parser.add_argument("--rows", type=positive, help="(default: 512)")
    parser.add_argument("--trial", action="store_true", help="a small run that decides nothing")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (96 if options.trial else 512)
    console = Console(options.format)
    try:
        with tempfile.TemporaryDirectory(prefix="compress-cache-") as work:
            console.table(list(lines(options, console, Path(work))))
    except CompressError as error:
        console.error(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
