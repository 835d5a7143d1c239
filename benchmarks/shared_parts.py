"""`python -m benchmarks.shared_parts`: how long a shared student has to be trained, and its parts after it.

Parts of one shared student, spread over their sizes, are scored on test as they are and after a training of their own:
by the rules of a new student, or for some epochs. Shared students are trained for several numbers of epochs.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scipy.stats import spearmanr
from transformers import PreTrainedModel

from benchmarks.defaults.real_sets import SETS
from benchmarks.report_store import positive
from compress.console import Console
from compress.data.tokenizer import TextTokenizer
from compress.errors import CompressError
from compress.model_shapes import parts_of
from compress.models import load
from compress.models.encoder_parts import shape_of
from compress.models.student.parts import take_part
from compress.recipe.distill_schema import Distill, SharedDistill
from compress.recipe.student_schema import Part
from compress.recipe.training_schema import Finetune
from compress.train.core.training_data import make_evaluator
from compress.train.finetune import finetune
from compress.train.shared_student import compare_parts, distill_part, train_shared

TEACHER, BATCH = "minilm-l6", 16


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parse(arguments)
    console = Console(options.format)
    try:
        with tempfile.TemporaryDirectory(prefix="compress-shared-") as scratch:
            table = measure(options, Path(options.work or scratch), console)
    except CompressError as error:
        console.error(error)
        return error.exit_code
    console.table(table)
    return 0


def measure(options: argparse.Namespace, work: Path, console: Console) -> list[dict[str, str]]:
    """Return a row for each shared student and each way to train its parts on."""
    rows = SETS[options.set].prepare(work / "data", options.rows)
    task, data, teacher = rows.info.task_info, work / "data", work / "teacher"
    once = {"epochs": 0.2, "batch_size": 16} if options.trial else {}
    if not teacher.exists():
        finetune(TEACHER, data, Finetune(**once), options.seed, teacher)
    evaluate = make_evaluator(rows.rows("test"), task, TextTokenizer.load(teacher))
    console.note(f"{options.set}, {task.metric} on {len(rows.rows('test')):,} rows of test")
    console.note(f"teacher: {100 * evaluate(load(teacher)):.1f}")
    parts = spread(parts_of(shape_of(load(teacher))), options.parts)
    ways = training_ways(options)
    table = list[dict[str, str]]()
    for epochs in options.shared:
        shared, begin = work / f"shared-{epochs:g}", time.perf_counter()
        if not shared.exists():
            train_shared(teacher, teacher, data, SharedDistill(epochs=epochs), options.seed, shared)
        shared_minutes = (time.perf_counter() - begin) / 60
        ranks = dict(compare_parts(shared, data, options.seed, console))
        for name, settings in ways.items():
            begin, scores = time.perf_counter(), list[float]()
            for part in parts:
                folder = work / f"{epochs:g} {name} {part.name}"
                scores.append(evaluate(distilled(work, shared, part, settings, options.seed, folder)))
                console.note(f"{epochs:g} epochs, {name}, {part.name}: {100 * scores[-1]:.1f}")
            rank = spearmanr([ranks[part] for part in parts], scores).statistic
            row = {
                "shared epochs": f"{epochs:g}",
                "parts are trained": name,
                "mean score": f"{100 * statistics.mean(scores):.2f}",
            }
            row |= {"rank correlation": f"{rank:.2f}", "minutes": f"{(time.perf_counter() - begin) / 60:.1f}"}
            table.append(row | {"minutes of the shared training": f"{shared_minutes:.1f}"})
            console.note(" | ".join(table[-1].values()))
    return table


def training_ways(options: argparse.Namespace) -> dict[str, Distill | None]:
    """Return the trainings of a part by their name; None: it stays as the shared training left it."""
    if options.trial:
        return {"not at all": None, "briefly": Distill(epochs=0.2, batch_size=BATCH)}
    ways: dict[str, Distill | None] = {"as a new student": Distill()} if options.new else {}
    return ways | {f"{epochs:g} epochs": Distill(epochs=epochs) if epochs else None for epochs in options.epochs}


def distilled(
    work: Path, shared: Path, part: Part, settings: Distill | None, seed: int, folder: Path
) -> PreTrainedModel:
    """Return a part, trained on with these settings in ``folder`` unless it is there."""
    if settings is None:
        return take_part(load(shared), part)
    if not folder.exists():
        distill_part(work / "teacher", shared, part, work / "data", settings, seed, folder, step=part.name)
    return load(folder)


def spread(parts: Sequence[Part], count: int) -> list[Part]:
    """Return so many parts, from small to large."""
    return [parts[int((index + 0.5) * len(parts) / count)] for index in range(count)]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared_parts", description=__doc__)
    parser.add_argument("--set", choices=tuple(SETS), default="sst2")
    parser.add_argument("--rows", type=positive, help="of each role, at most (default: 2000)")
    parser.add_argument("--parts", type=positive, help="(default: 8)")
    parser.add_argument("--shared", type=float, nargs="+", default=[1.0, 4.0], help="epochs of the shared training")
    parser.add_argument("--epochs", type=float, nargs="*", default=[0.0, 3.0], help="of a part by itself; 0: none")
    parser.add_argument("--no-new", dest="new", action="store_false", help="without the rules of a new student")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", help="folder of the trainings, kept: the same command goes on there")
    parser.add_argument("--trial", action="store_true", help="everything in small, to see that it runs")
    parser.add_argument("--format", choices=("human", "json", "quiet"), default="human")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (64 if options.trial else 2000)
    options.parts = options.parts or (2 if options.trial else 8)
    options.shared = [0.2] if options.trial else options.shared
    return options


if __name__ == "__main__":
    sys.exit(main())
