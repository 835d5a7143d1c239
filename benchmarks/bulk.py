"""`python -m benchmarks.bulk MODEL… --texts NAME=FILE:COLUMN`: how fast `predict --file --to` labels many rows.

The texts of a file, repeated as needed, are labelled by one process and by one for each core, by a `datasets.map` loop
around the same ONNX file, and by transformers' pipeline around the model in PyTorch that `--pytorch` names: in turns,
each as a process of its own, start included. The limit is the model alone: its predictor on texts that are tokenized
and sorted, at the best of four batches. Then, with the last model, memory at few and at many rows, and kills at random
moments.
"""

import argparse
import csv
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import psutil

from benchmarks.markdown_page import machine, origin, table
from benchmarks.report_store import Report, Store, beginning, carry_out, positive, run
from compress.bulk.read_table import TableFile, cells_of, format_of, parsed_objects
from compress.console import Console
from compress.data.encode import batches_by_length
from compress.environment import usable_cores
from compress.errors import CompressError
from compress.measure.result_base import ResultModel
from compress.runtime.text_model import TextModel

BATCHES = (1, 8, 16, 32)
SMALL, LIMIT_ROWS = 10_000, 2048
ALONE = "the model alone"
KILLED_ROWS = 100_000
LOOP = """
import sys, compress
from datasets import load_dataset
model = compress.open(sys.argv[1])
rows = load_dataset("csv", data_files=sys.argv[2], split="train", cache_dir=sys.argv[4])
label = lambda part: {"label": [each["label"] for each in model.predict(part["text"])]}
rows.map(label, batched=True, batch_size=32).to_csv(sys.argv[3])
"""
PIPELINE = """
import csv, sys, torch, transformers
torch.set_num_threads(int(sys.argv[4]))
import compress.models
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
settings = {"batch_size": 32, "truncation": True, "max_length": 128}
classify = pipeline("text-classification", model=model, tokenizer=tokenizer, **settings)
with open(sys.argv[2], newline="") as given, open(sys.argv[3], "w", newline="") as out:
    writer = csv.writer(out)
    writer.writerows([row["label"]] for row in classify(row["text"] for row in csv.DictReader(given)))
"""
COLUMNS = ("texts", "model", "how", "rows", "rows a second", "of the model alone", "memory")


class Rate(ResultModel):
    """One way to label the rows."""

    texts: str
    model: str
    how: str
    rows: int
    seconds: float
    megabytes: float | None = None
    """Most memory of all its processes together."""

    @property
    def key(self) -> str:
        """Its name in the report."""
        return f"{self.texts} {self.model} {self.how} {self.rows}"

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


class BulkReport(Report):
    """The results."""

    about: str = "bulk"
    rates: tuple[Rate, ...] = ()
    kills: int = 0
    equal: int = 0
    """Outputs after a kill that were equal byte for byte."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; 130 where it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bulk", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path, help="folders of exported models")
    parser.add_argument("--texts", action="append", required=True, metavar="NAME=FILE:COLUMN")
    parser.add_argument("--pytorch", type=Path, help="a model folder for transformers' pipeline")
    parser.add_argument("--rows", type=positive, default=100_000)
    parser.add_argument("--pipeline-rows", type=positive, default=2_000)
    parser.add_argument("--many", type=positive, default=1_000_000, help="rows of the memory test")
    parser.add_argument("--kills", type=positive, default=20)
    parser.add_argument("--out", type=Path, default=Path("reports/bulk"))
    given = parser.parse_args(arguments)
    store = Store(BulkReport(**beginning("python -m benchmarks.bulk", trial=False)), given.out, page)
    store.resume()
    return carry_out(store, Console("human"), partial(measure, store, given), show)


def measure(store: Store[BulkReport], given: argparse.Namespace, work: Path) -> None:
    """Measure what has no result yet."""
    cores = usable_cores()
    named = {name: list(read_texts(place)) for name, _, place in (each.partition("=") for each in given.texts)}
    for name, texts in named.items():
        rows = write_rows(work / f"{name}.csv", texts, given.rows)
        for model in given.models:
            timed = partial(time_command, store, name, model.name, given.rows)
            add_limits(store, name, model, texts, cores)
            for workers in dict.fromkeys((1, cores)):
                timed(f"predict --workers {workers}", bulk_command(model, rows, work / "out.csv", workers))
            timed("a datasets.map loop", script(LOOP, model, rows, work / "loop.csv", work / "cache"))
        if given.pytorch:
            few = write_rows(work / f"{name}-few.csv", texts, given.pipeline_rows)
            for threads in dict.fromkeys((1, cores)):
                command = script(PIPELINE, given.pytorch, few, work / "pipeline.csv", threads)
                how = f"transformers' pipeline, threads: {threads}"
                time_command(store, name, given.pytorch.name, given.pipeline_rows, how, command)
    (name, texts), *_ = named.items()
    model = given.models[-1]
    for count in (SMALL, given.many):
        rows = write_rows(work / "rows.csv", texts, count)
        command = bulk_command(model, rows, work / "out.csv", cores)
        time_command(store, name, model.name, count, f"memory, --workers {cores}", command)
    kill(store, given.kills, model, texts, work)


def read_texts(place: str) -> Iterator[str]:
    """Yield the texts of a column."""
    name, _, column = place.rpartition(":")
    for part in TableFile(Path(name), format_of(name), header=not column.isdecimal()).parts():
        objects = None if part.columns else parsed_objects(part)[0]
        yield from (text for (text,) in cells_of(part, (column,), objects) if text)


def write_rows(path: Path, texts: Sequence[str], count: int) -> Path:
    """Write so many rows, the texts again and again."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "text"])
        writer.writerows(enumerate(islice(cycle(texts), count)))
    return path


def bulk_command(model: Path, rows: Path, out: Path, workers: int) -> list[str]:
    """Return our command."""
    options = ["--to", str(out), "--text", "text", "--replace", "--workers", str(workers)]
    return [sys.executable, "-m", "compress", "predict", str(model), "--file", str(rows), *options]


def script(text: str, *arguments: object) -> list[str]:
    """Return the command of another way."""
    return [sys.executable, "-c", text, *map(str, arguments)]


def add_limits(store: Store[BulkReport], name: str, folder: Path, texts: Sequence[str], cores: int) -> None:
    """Store how fast the predictor is on texts that are tokenized before: on one core, and on all of them at once."""
    given = list(islice(cycle(texts), LIMIT_ROWS))
    context = multiprocessing.get_context("spawn")
    for processes in dict.fromkeys((1, cores)):
        rate = Rate(texts=name, model=folder.name, how=f"{ALONE}, processes: {processes}", rows=LIMIT_ROWS, seconds=0.0)
        if rate.key not in {each.key for each in store.report.rates}:
            with context.Pool(processes) as pool:
                seconds = pool.starmap(seconds_alone, [(folder, given)] * processes, chunksize=1)
            add(store, rate.model_copy(update={"seconds": max(seconds) / processes}))


def seconds_alone(folder: Path, texts: Sequence[str]) -> float:
    """Return the seconds of the predictor at its best batch."""
    model = TextModel.open(folder)
    prepared = model.prepare(texts)
    lengths = np.array([len(example["input_ids"]) for example in prepared.examples])
    best = float("inf")
    for batch in (model.batch,) if model.depends_on_batch else BATCHES:
        parts = batches_by_length(lengths, batch)
        arrays = [model.arrays([prepared.examples[index] for index in part]) for part in parts]
        start = time.monotonic()
        for each in arrays:
            model.predictor.predict(each)
        best = min(best, time.monotonic() - start)
    return best


def add(store: Store[BulkReport], rate: Rate) -> None:
    """Store a result."""
    store.update(rates=(*(each for each in store.report.rates if each.key != rate.key), rate))


def time_command(store: Store[BulkReport], texts: str, model: str, rows: int, how: str, command: Sequence[str]) -> None:
    """Time a command and watch its memory, unless it has a result."""
    rate = Rate(texts=texts, model=model, how=how, rows=rows, seconds=0.0)
    if rate.key in {each.key for each in store.report.rates}:
        return
    start, most = time.monotonic(), 0
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as said:
        process = psutil.Popen(command, stdout=said, stderr=said, env=environment)
        while process.poll() is None:
            most = max(most, memory_of(process))
            time.sleep(0.1)
        seconds = time.monotonic() - start
        if process.returncode:
            said.seek(0)
            raise CompressError(f"{rate.key} failed: {said.read().decode()[-2000:]}")
    add(store, rate.model_copy(update={"seconds": seconds, "megabytes": most / 1e6}))


def memory_of(process: psutil.Process) -> int:
    """Return the memory of a process and of those that it started."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            total += each.memory_full_info().uss
        except psutil.Error:
            continue
    return total


def kill(store: Store[BulkReport], count: int, model: Path, texts: Sequence[str], work: Path) -> None:
    """Kill the command at random moments; the same command then ends with the same bytes."""
    rows, whole = write_rows(work / "rows.csv", texts, KILLED_ROWS), work / "whole.csv"
    start = time.monotonic()
    subprocess.run(bulk_command(model, rows, whole, usable_cores()), check=True, capture_output=True)
    takes = time.monotonic() - start
    draw = random.Random(0)
    while store.report.kills < count:
        out = work / "killed.csv"
        out.unlink(missing_ok=True)
        command = [word for word in bulk_command(model, rows, out, usable_cores()) if word != "--replace"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0.05, 0.98) * takes)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not out.exists():
            subprocess.run(command, check=True, capture_output=True)
        same = out.read_bytes() == whole.read_bytes()
        store.update(kills=store.report.kills + 1, equal=store.report.equal + same)


def page(report: BulkReport) -> str:
    """Return the page in Markdown."""
    blocks = [
        "# Files of many rows",
        origin(report),
        "Rows a second of whole commands, their start included. `memory`: the most that all processes of a command held"
        " for themselves, together. The model alone: its predictor, a thread a process, in so many processes at once,"
        " on texts that are tokenized and sorted before.",
        table(rows_of(report), COLUMNS, COLUMNS[3:]),
    ]
    if report.kills:
        kills = f"{report.equal} of {report.kills} outputs equal byte for byte"
        blocks.append(f"Killed with SIGKILL at a random moment and run again: {kills}.")
    return "\n\n".join([*blocks, machine(report)]) + "\n"


def rows_of(report: BulkReport) -> Iterator[dict[str, str | None]]:
    """Yield the rows of the table."""
    limits = {
        (each.texts, each.model, each.how.rpartition(" ")[2]): each.rate
        for each in report.rates
        if each.how.startswith(ALONE)
    }
    for each in report.rates:
        count = each.how.rpartition(" ")[2] if each.how.startswith((ALONE, "predict")) else "1"
        limit = limits.get((each.texts, each.model, count))
        yield {
            "texts": each.texts,
            "model": each.model,
            "how": each.how,
            "rows": f"{each.rows:,}",
            "rows a second": f"{each.rate:,.0f}",
            "of the model alone": f"{each.rate / limit:.2f}" if limit else None,
            "memory": f"{each.megabytes:,.0f} MB" if each.megabytes else None,
        }


def show(report: BulkReport, console: Console) -> None:
    """Print the table."""
    console.table(list(rows_of(report)), COLUMNS)
    console.note(f"{report.equal} of {report.kills} outputs after a kill are equal byte for byte")


if __name__ == "__main__":
    run(main)
