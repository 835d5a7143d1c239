"""`python -m benchmarks.distill_memory`: memory of a distillation, and its growth with the number of rows.

MiniLM is distilled to three of its layers with hidden states, attention and soft labels, on rows of 128 tokens each.
For each number of rows a fresh process reads prepared data, encodes all of it, trains some steps twice (the second time
with another seed, so that the teacher's outputs are cached on disk, as in any training of several epochs) and reports
its peak memory (VmHWM of Linux). That includes mapped files, which the system frees when other processes need memory;
the peak without them is reported too.
"""

import argparse
import json
import random
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from benchmarks.distill_throughput.contestants import CpuPlacement, run_pinned
from benchmarks.markdown_page import machine, origin, table
from benchmarks.report_store import Report, Store, beginning, carry_out, in_place, positive, run
from compress import __version__
from compress.console import Console, duration
from compress.measure.result_base import ResultModel
from compress.measure.timing.process_limits import choose_cores
from compress.measure.timing.worker_process import error_line
from compress.pipeline.strip_paths import strip_paths

SOURCE = "minilm-l6"
LAYERS = (1, 3, 5)
LENGTH, BATCH = 128, 32
GIB = 2**30
MAX_BYTES = 2.5 * GIB
TOLERANCE = 1.05
"""Peaks of repeated runs differ by a few per cent."""
ROWS, STEPS = (4_000, 400_000), 24
TRIAL_ROWS, TRIAL_STEPS = (256, 1024), 2
STATUS = Path("/proc/self/status")
RESULT_FILE = "answer.json"
COLUMNS = ("rows", "peak", "without files", "took", "message")


class Peak(ResultModel):
    """One process."""

    rows: int
    peak: int | None = None
    """Bytes, files that it maps included."""
    own: int | None = None
    """The peak without mapped files, sampled ten times a second."""
    seconds: float | None = None
    reason: str | None = "not run"

    @property
    def key(self) -> str:
        """Its number of rows."""
        return str(self.rows)


class MemoryReport(Report):
    """Peaks of all processes of a run."""

    about: Literal["distill_memory"] = "distill_memory"
    steps: int
    threads: int
    peaks: tuple[Peak, ...]

    @property
    def failed(self) -> bool:
        """Whether a process did not run."""
        return any(one.reason for one in self.peaks)

    @property
    def growth(self) -> float | None:
        """The peak of the most rows over that of the fewest."""
        known = sorted((one.rows, one.peak) for one in self.peaks if one.peak is not None)
        return known[-1][1] / known[0][1] if len(known) > 1 else None

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Each goal and whether it is met."""
        first, growth = self.peaks[0].peak, self.growth
        return (
            f"under {MAX_BYTES / GIB:g} GiB: {_verdict(None if first is None else first < MAX_BYTES)}",
            f"no more on {self.peaks[-1].rows:,} rows than on {self.peaks[0].rows:,} (within {TOLERANCE - 1:.0%}): "
            + (_verdict(None) if growth is None else f"{growth:.3f} times, {_verdict(growth <= TOLERANCE)}"),
        )


def _verdict(met: bool | None) -> str:
    """Return `met`, `missed` or `not measured`."""
    return "not measured" if met is None else "met" if met else "missed"


def gib(size: int | None) -> str:
    """Format bytes as GiB."""
    return "-" if size is None else f"{size / GIB:.2f} GiB"


def cells(one: Peak) -> dict[str, str]:
    """Return the table row of a process."""
    took = "-" if one.seconds is None else duration(one.seconds)
    return dict(zip(COLUMNS, (f"{one.rows:,}", gib(one.peak), gib(one.own), took, one.reason or ""), strict=True))


def page(report: MemoryReport) -> str:
    """The report in Markdown."""
    work = f"Rows of {LENGTH} tokens, batch {BATCH}, twice {report.steps} steps, {report.threads} thread(s), one CPU."
    peaks = table(map(cells, report.peaks), COLUMNS, COLUMNS[:-1])
    goals = "\n".join(f"- {verdict}" for verdict in report.verdicts)
    blocks = ["# How much memory does distillation take?", origin(report), work, peaks, goals, machine(report)]
    return "\n\n".join(blocks) + "\n"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distill_memory", description="Memory of distillation.")
    parser.add_argument("--rows", type=_counts, help="comma-separated numbers of rows (default: 4000,400000)")
    parser.add_argument("--steps", type=positive, help=f"of training (default: {STEPS})")
    parser.add_argument("--threads", type=positive, default=2, help="default: 2")
    parser.add_argument("--out", type=Path, help="folder of the report (default: reports/distill_memory)")
    parser.add_argument("--trial", action="store_true", help="a small run that decides nothing")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.rows = options.rows or (TRIAL_ROWS if options.trial else ROWS)
    options.steps = options.steps or (TRIAL_STEPS if options.trial else STEPS)
    if options.out is None and not options.trial:
        options.out = Path("reports/distill_memory")
    return options


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(int(word) for word in text.split(","))
    if min(counts) < BATCH:
        raise argparse.ArgumentTypeError(f"expected {BATCH} rows or more")
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and return 0 even if a goal is missed; 1 where a process did not run."""
    options = parse(arguments)
    if options.measure is not None:
        measure(options.measure, options.steps)
        return 0
    console = Console("human")
    report = MemoryReport(
        **beginning(command(options), options.trial),
        steps=options.steps,
        threads=options.threads,
        peaks=tuple(Peak(rows=rows) for rows in options.rows),
    )
    store = Store(report, options.out, page)
    return carry_out(store, console, lambda work: _all(options, work, store, console), show)


def _all(options: argparse.Namespace, work: Path, store: Store[MemoryReport], console: Console) -> None:
    """Run a process for each number of rows."""
    placement = CpuPlacement(options.threads, choose_cores(options.threads).own or None)
    for rows in options.rows:
        folder = work / str(rows)
        folder.mkdir()
        peak = one_process(folder, rows, options.steps, placement, console)
        shutil.rmtree(folder)
        store.update(peaks=in_place(store.report.peaks, peak))


def show(report: MemoryReport, console: Console) -> None:
    """Print all processes and the goals."""
    console.table([cells(one) for one in report.peaks], COLUMNS)
    for verdict in report.verdicts:
        console.line(verdict)


def command(options: argparse.Namespace) -> str:
    """Return the command with its relevant options."""
    trial = ["--trial"] if options.trial else []
    rows = ",".join(map(str, options.rows))
    parts = ["python -m benchmarks.distill_memory", *trial, f"--rows {rows} --steps {options.steps}"]
    return " ".join([*parts, f"--threads {options.threads}"])


def one_process(work: Path, count: int, steps: int, placement: CpuPlacement, console: Console) -> Peak:
    """Generate the rows and distil on them in a fresh process."""
    if not STATUS.is_file():
        return Peak(rows=count, reason="not run: only Linux reports a process's peak")
    console.note(f"generating {count:,} rows …")
    make_data(work, count)
    console.note(f"distilling on {count:,} rows …")
    start = time.monotonic()
    parts = ["-m", "benchmarks.distill_memory", "--measure", str(work), "--steps", str(steps)]
    done = run_pinned([sys.executable, *parts], work, placement)
    if done.returncode:
        return Peak(rows=count, reason=f"not run: {strip_paths(error_line(done.stderr)) or 'no error message'}")
    result = json.loads((work / RESULT_FILE).read_text(encoding="utf-8"))
    return Peak(rows=count, seconds=time.monotonic() - start, reason=None, **result)


def make_data(work: Path, count: int) -> None:
    """Prepare ``count`` rows of words that are one token each, a few more to select on, and the teacher's folder."""
    from compress.data.splits.prepare_splits import load_prepared, prepare_splits
    from compress.model_folder.model_info import FolderInfo
    from compress.models.load_save import load_model, load_tokenizer, save_model
    from compress.recipe.task_schema import Data, Task

    tokenizer = load_tokenizer(SOURCE)
    parts = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha())
    files = {"train": count, "select": 2 * BATCH, "test": 2 * BATCH}
    for role, many in files.items():
        with (work / f"{role}.jsonl").open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in generate_rows(parts, many, role))
    (work / "data").mkdir()
    data = Data(**{role: str(work / f"{role}.jsonl") for role in files})
    prepare_splits(Task(name="memory", kind="classification", data=data, max_length=LENGTH), 0, work / "data")
    task = load_prepared(work / "data").info.task_info
    info = FolderInfo(step="benchmark", made_by=f"compress {__version__}", task=task)
    save_model(load_model(SOURCE, task), tokenizer, work / "teacher", info)


def generate_rows(parts: Sequence[str], count: int, seed: str) -> Iterator[dict[str, str]]:
    """Yield random rows; two of the tokens are [CLS] and [SEP]."""
    rng = random.Random(seed)
    for number in range(count):
        yield {"text": " ".join(rng.choices(parts, k=LENGTH - 2)), "label": ("no", "yes")[number % 2]}


def measure(work: Path, steps: int) -> None:
    """Distil in this process, and write its peak memory to a file."""
    from compress.recipe.distill_schema import Distill
    from compress.recipe.student_schema import Student
    from compress.train.distill import distill

    losses = {"soft_label": 1.0, "hidden_state": 1.0, "attention": 1.0}
    settings = Distill.model_validate({"batch_size": BATCH, "max_steps": steps, "restarts": 2, "losses": losses})
    watch = Watch()
    watch.start()
    distill(work / "teacher", Student(layers=LAYERS), work / "data", settings, 0, work / "student")
    result = {"peak": status("VmHWM"), "own": watch.most}
    (work / RESULT_FILE).write_text(json.dumps(result), encoding="utf-8")


class Watch(threading.Thread):
    """Samples this process's memory without mapped files ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0

    def run(self) -> None:
        """Sample until the process ends."""
        while True:
            self.most = max(self.most, status("RssAnon"))
            time.sleep(0.1)


def status(key: str) -> int:
    """Return a value of the process's status file, in bytes."""
    lines = STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    run(main)
