"""The contestants, and how each is run: in a separate process, on the same cores, with the same threads."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.distill_throughput.environments import TEXTBREWER, TORCHDISTILL, Environment
from benchmarks.distill_throughput.race_job import RESULT_FILE, Job
from benchmarks.harness.other_tools import pinned_to
from compress.measure.timing.worker_process import error_line, worker_environment
from compress.pipeline.strip_paths import strip_paths

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 3600.0


class Failed(Exception):
    """A contestant gave no result; the message says why."""


@dataclass(frozen=True)
class Contestant:
    """A tool that distils."""

    name: str
    about: str
    module: str
    environment: Environment | None = None
    """None: the current environment."""

    @property
    def python(self) -> str:
        """The interpreter that runs it."""
        return str(self.environment.python) if self.environment else sys.executable


OURS = Contestant("ours", "batches of similar lengths, SDPA, precision `auto`", "with_compress")
TEXTBREWER_RUN = Contestant(
    "textbrewer", "TextBrewer 0.2.1: padded to 128, eager, all layers kept, fp32", "with_textbrewer", TEXTBREWER
)
TORCHDISTILL_RUN = Contestant(
    "torchdistill",
    "torchdistill 1.1.5: padded to the longest of a batch, eager, fp32",
    "with_torchdistill",
    TORCHDISTILL,
)
PLAIN = Contestant("plain", "a loop by hand: padded to the longest of a batch, eager, fp32", "plain_loop")
CONTESTANTS = {each.name: each for each in (OURS, TEXTBREWER_RUN, TORCHDISTILL_RUN, PLAIN)}


@dataclass(frozen=True)
class CpuPlacement:
    """The cores and threads of contestants."""

    threads: int
    cores: tuple[int, ...] | None
    """None where the system cannot pin processes."""


def run(contestant: Contestant, job: Job, placement: CpuPlacement) -> dict[str, Any]:
    """Run the contestant; return its timed rows, seconds and precision."""
    job.output.mkdir(parents=True)
    command = [contestant.python, "-m", f"benchmarks.distill_throughput.{contestant.module}", str(job.write())]
    try:
        done = run_pinned(command, job.output, placement)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{contestant.name} was not done in {PATIENCE:.0f} s") from error
    result_path = job.output / RESULT_FILE
    if done.returncode or not result_path.is_file():
        message = strip_paths(error_line(done.stderr or done.stdout)) or "no error message"
        raise Failed(f"{contestant.name} ended with {done.returncode}: {message}")
    result: dict[str, Any] = json.loads(result_path.read_text(encoding="utf-8"))
    if not result["rows"]:
        raise Failed(f"{contestant.name} trained on no row while it was timed")
    return result


def run_pinned(command: Sequence[str], work: Path, placement: CpuPlacement) -> subprocess.CompletedProcess[str]:
    """Run a command on the placement's cores, without GPU and hub."""
    isolated = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1"}
    with pinned_to(placement.cores):
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            env=worker_environment(placement.threads) | isolated,
            cwd=work,
            check=False,
        )
