"""Other tools on the same file: how each is called, and how its output is parsed."""

import csv
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import bare_loop
from compress.measure.timing.worker_process import error_line, worker_environment
from compress.pipeline.strip_paths import strip_paths

PATIENCE = 180.0
"""Seconds after which a tool is stopped."""
BENCHMARK_APP = "from openvino.tools.benchmark.main import main; main()"
"""The program of the `benchmark_app` command, run by this interpreter regardless of PATH."""
WITHOUT_VNNI = (
    "the harness guards INT8 products against overflow on this processor (it has no VNNI), which is slower; "
    "the tool has no such switch"
)


class ToolFailed(Exception):
    """Another tool gave no figure; the message says why."""


@dataclass(frozen=True)
class Task:
    """The job of every tool."""

    model: Path
    inputs: Mapping[str, Path]
    """Each input's array, as a .npy file."""
    batch: int
    length: int
    threads: int
    calls: int
    work: Path
    """An empty folder for what the tool writes."""

    @property
    def linked(self) -> Path:
        """The model as seen from the work folder, which has a link to it."""
        return self.work / "model.onnx"


@dataclass(frozen=True)
class Tool:
    """How a tool is called and read."""

    name: str
    command: Callable[[Task], list[str]]
    read: Callable[[Task, str], float]
    """The median in milliseconds, from the task and what the tool wrote to stdout."""
    package: str
    """What must be installed."""


def bare_command(task: Task) -> list[str]:
    """Return the command of the bare loop."""
    given = [f"{name}={path}" for name, path in task.inputs.items()]
    script = str(Path(bare_loop.__file__).resolve())
    # -P: files next to the script must not shadow a library of the same name.
    return [sys.executable, "-P", script, str(task.model), str(task.threads), str(task.calls), *given]


def read_bare(_: Task, output: str) -> float:
    """One line of JSON."""
    return float(json.loads(output)["milliseconds"])


def bert_command(task: Task) -> list[str]:
    """ONNX Runtime's own tool. It writes its summary next to the model, so it gets the link in the work folder."""
    return [
        *(sys.executable, "-m", "onnxruntime.transformers.bert_perf_test"),
        *("--model", str(task.linked), "--batch_size", str(task.batch), "--sequence_length", str(task.length)),
        # As many samples as calls, each once: it runs one untimed call before every series.
        *("--samples", str(task.calls), "--test_times", "1", "--intra_op_num_threads", str(task.threads)),
    ]


def read_bert(task: Task, _: str) -> float:
    """The summary is a table with one row; the console shows only the mean."""
    files = sorted(task.work.glob("perf_results_*.txt"))
    if not files:
        raise ToolFailed("bert_perf_test wrote no summary")
    return read_bert_summary(files[-1].read_text(encoding="utf-8"))


def read_bert_summary(text: str) -> float:
    """The median of the first row."""
    row = next(csv.DictReader(text.splitlines(), delimiter="\t"), None)
    if row is None or "Latency_P50" not in row:
        raise ToolFailed("bert_perf_test wrote a summary without Latency_P50")
    return float(row["Latency_P50"])


def app_command(task: Task) -> list[str]:
    """OpenVINO's tool, with the settings of our runtime: one stream, f32, no pinning, shapes left dynamic."""
    shapes = ",".join(f"{name}[{task.batch},{task.length}]" for name in task.inputs)
    return [
        *(sys.executable, "-c", BENCHMARK_APP),
        *("-m", str(task.model), "-d", "CPU", "-api", "sync", "-niter", str(task.calls)),
        # Threads and streams can be given only without a hint; one stream is what the latency hint comes to.
        *("-hint", "none", "-nstreams", "1", "-nthreads", str(task.threads), "-pin", "NO", "-infer_precision", "f32"),
        # Its own random inputs go up to 255, beyond the two rows of the table of token types.
        *("-data_shape", shapes, "-i", *(f"{name}:{path}" for name, path in task.inputs.items())),
        *("-report_type", "no_counters", "-report_folder", str(task.work), "-json_stats"),
    ]


def read_app(task: Task, _: str) -> float:
    """Its statistics as JSON; the console has the same figure in units that change with its size."""
    path = task.work / "benchmark_report.json"
    if not path.is_file():
        raise ToolFailed("benchmark_app wrote no statistics")
    return read_app_statistics(path.read_text(encoding="utf-8"))


def read_app_statistics(text: str) -> float:
    """The median, which is its default percentile."""
    results = json.loads(text).get("execution_results", {})
    if "latency (ms)" not in results:
        raise ToolFailed(f"benchmark_app gave no median: {strip_paths(str(results.get('error', 'no error given')))}")
    return float(results["latency (ms)"])


BARE = Tool("bare", bare_command, read_bare, "onnxruntime")
BERT_PERF_TEST = Tool("bert_perf_test", bert_command, read_bert, "torch")
APP = Tool("benchmark_app", app_command, read_app, "openvino")


def run_tool(tool: Tool, task: Task) -> float:
    """Run the tool once and return its median in milliseconds."""
    task.linked.symlink_to(task.model)
    try:
        done = subprocess.run(
            tool.command(task),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            env=worker_environment(task.threads),
            cwd=task.work,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(f"{tool.name} gave no result in {PATIENCE:.0f} s") from error
    if done.returncode:
        raise ToolFailed(f"{tool.name} ended with {done.returncode}: {_reason(done.stderr or done.stdout)}")
    try:
        return tool.read(task, done.stdout)
    except (ValueError, KeyError) as error:
        raise ToolFailed(f"the output of {tool.name} cannot be parsed: {strip_paths(str(error))}") from error


def displayed_command(tool: Tool, task: Task) -> str:
    """Return the command as a reader could type it, without paths."""
    words = [word.replace(f"{task.work}{os.sep}", "").replace(str(task.work), "work") for word in tool.command(task)]
    typed = " ".join("python" if word == sys.executable else word for word in words)
    return strip_paths(typed.replace(f"python -c {BENCHMARK_APP}", "benchmark_app"))


def missing(tool: Tool) -> str | None:
    """Why the tool cannot run here; None where it can."""
    return None if importlib.util.find_spec(tool.package) else f"{tool.package} is not installed"


def _reason(message: str) -> str:
    return strip_paths(error_line(message)) or "no error message"


@contextmanager
def pinned_to(cores: Sequence[int] | None) -> Iterator[None]:
    """Start processes on these cores alone: they inherit them from this thread. None: not pinned."""
    if cores is None or sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
