"""`python -m benchmarks.cache_difference`: do a teacher's words from disk differ from those of a fresh pass?

A teacher's own layers 1, 3 and 5 (of six) make a student, without dropout, and two epochs are walked: in the first the
teacher's words are kept, in the second, whose batches are others, each loss is computed with what was kept and with a
fresh pass. Told is the largest difference of a batch's loss, in itself and as a part of it; and for comparison that
of a fresh pass of both models with 16 more pieces of padding.
"""

from __future__ import annotations

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
from compress.recipe.training_schema import Distill, Student
from compress.train.core.device_batches import DeviceBatches, pad_width
from compress.train.core.training_data import from_rows
from compress.train.core.update_schedule import UpdateSchedule
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.fast_paths.bf16_weights import Bf16Weights
from compress.train.fast_paths.fast_training import fast_training
from compress.train.objective import Examples, Objective
from compress.train.teacher_cache.cache import make_teacher_cache

LOSSES = {"hidden_state": 1.0, "attention": 1.0, "relation": 1.0, "soft_label": 1.0}
WIDER = 16
COLUMNS = ("precision", "loss", "mean", "kept: largest difference", "as a part", "16 more of padding", "part of that")
CPU = torch.device("cpu")


class Seen(list[tuple[float, float, float]]):
    """One loss of all batches: with a fresh pass, with what was kept, and with more padding."""

    def cells(self) -> tuple[str, ...]:
        """Its mean; the largest difference in itself and as a part; the part with padding; the one over the other."""
        mean = sum(fresh for fresh, _, _ in self) / len(self)
        apart = max(abs(kept - fresh) for fresh, kept, _ in self)
        shares = [max(abs(one[place] - one[0]) / one[0] for one in self) for place in (1, 2)]
        part = "-" if not shares[1] else f"{shares[0] / shares[1]:.2f}"
        return f"{mean:.3g}", f"{apart:.1e}", f"{shares[0]:.1e}", f"{shares[1]:.1e}", part


def compare(
    teacher: PreTrainedModel, task_data: RealTask, examples: Examples, precision: str, work: Path
) -> Mapping[str, Seen]:
    """Walk two epochs in this precision."""
    settings = Distill.model_validate({"losses": LOSSES, "hard_label": 0.0, "epochs": 2, "precision": precision})
    student = build_student(teacher, Student(layers=0.5), task_data.task)
    student.train(False)
    keep = make_teacher_cache(settings, examples, task_data.task, work, Console("quiet"), "distill")
    objective = partial(DistillObjective, student, teacher, settings, task_data.task)
    fresh, kept = objective(), objective(cache=keep)
    copy = Bf16Weights(student)
    copy.refresh()
    with fast_training(student, [teacher], None, precision, CPU), torch.no_grad():
        if precision == "fp32":
            return dict(_walk(student, fresh, kept, examples, settings))
        with copy.running():
            return dict(_walk(student, fresh, kept, examples, settings))


def _walk(
    student: PreTrainedModel, fresh: Objective, kept: Objective, examples: Examples, settings: Distill
) -> Mapping[str, Seen]:
    """The losses of the second epoch's batches, by name."""
    plan, batches, found = (
        UpdateSchedule(examples.lengths, settings, 0),
        DeviceBatches(examples, CPU),
        defaultdict[str, Seen](Seen),
    )
    for update in range(plan.total):
        (indices,) = plan.batches(update)
        batch = batches(indices)
        for each in (kept, fresh):
            each.begin(update / plan.total)
        read = kept(student, batch)
        if update < plan.per_epoch:
            continue
        pad_id, width = student.config.pad_token_id or 0, batch["input_ids"].shape[1] + WIDER
        wide = pad_width(batch, examples.arrays(), pad_id, width)
        asked, padded = fresh(student, batch), fresh(student, wide)
        for name, loss in asked.items():
            found[name].append((float(loss), float(read[name]), float(padded[name])))
    return found


def lines(given: argparse.Namespace, console: Console, room: Path) -> Iterator[dict[str, str]]:
    """A row for each loss in each precision."""
    task_data = RealTask(room, console, given.rows, trial=given.trial, teacher=given.teacher)
    teacher, rows = load(task_data.teacher), task_data.first("train", given.rows)
    examples = from_rows(rows, (), task_data.task, TextTokenizer.load(task_data.teacher), console).train
    console.note(f"{len(rows)} rows of {task_data.source}")
    for precision in ("fp32", "bf16"):
        for name, seen in compare(teacher, task_data, examples, precision, room / precision).items():
            yield dict(zip(COLUMNS, (precision, name, *seen.cells()), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache_difference", description=__doc__)
    add_teacher(parser)
    parser.add_argument("--rows", type=positive, help="(default: 512)")
    parser.add_argument("--trial", action="store_true", help="in small: shows that it runs, decides nothing")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    given = parser.parse_args(arguments)
    given.rows = given.rows or (96 if given.trial else 512)
    console = Console(given.format)
    try:
        with tempfile.TemporaryDirectory(prefix="compress-cache-") as room:
            console.table(list(lines(given, console, Path(room))))
    except CompressError as error:
        console.error(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
