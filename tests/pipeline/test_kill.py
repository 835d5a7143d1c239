"""After `kill -9` inside any step the same command resumes and ends with the same weights."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from compress.model_folder.model_info import read_info
from compress.prune.latency_table import TABLE_FILE, read_table
from compress.report.report_schema import read_report
from compress.storage.file_digests import file_digest
from tests.command_process import CommandProcess, run_command, run_script, start_command
from tests.prune.test_latency_table import table

pytestmark = pytest.mark.slow

METHODS = ["--set", "quantize.methods=[dynamic, static-minmax]"]
LONGER = ["--set", "finetune.epochs=8", "--set", "distill.epochs=8", "--set", "prune.recover.epochs=8"]
OFTEN = [f"--set={step}.checkpoint.steps=2" for step in ("finetune", "distill", "prune.recover")]
TRAININGS = ("finetune", "distill", "recover")
MODELS = (*TRAININGS, "cut")
STEPS = (
    "data",
    "finetune",
    "distill",
    "cut",
    "recover",
    "score-teacher",
    "export-teacher",
    "quantize-teacher",
    "fallback-teacher",
    "tune-teacher",
    "screen-pruned",
    "floor",
    "measure",
    "quality",
    "select",
    "package",
    "report",
    "publish",
)
PATIENCE = 600
SLOWER = Path(__file__).with_name("slower_than_predicted.py")


def command(recipe: Path, runs: Path) -> list[str]:
    zoo = f"--set=publish={runs / 'zoo'}"  # of its own
    return ["run", str(recipe), "--runs", str(runs), zoo, *LONGER, *OFTEN]


def weights(runs: Path) -> dict[str, str]:
    return {step: file_digest(next((runs / ".steps").glob(f"{step}-*/model.safetensors"))) for step in MODELS}


def kill_inside(step: str, recipe: Path, runs: Path, *options: str) -> bool:
    """Start the run and kill it once ``step`` has begun (a training: has a checkpoint); return whether it was."""
    events = runs / "tiny" / "events.jsonl"
    earlier = starts(step, events)
    running = start_command(*command(recipe, runs), *options)
    deadline = time.monotonic() + PATIENCE
    while running.poll() is None and time.monotonic() < deadline:
        if starts(step, events) > earlier and (step not in TRAININGS or checkpoints(step, runs)):
            running.send_signal(signal.SIGKILL)
            running.wait()
            return True
        time.sleep(0.002)
    running.kill()
    running.wait()
    return False


def checkpoints(step: str, runs: Path) -> list[Path]:
    """Return the checkpoints of a step that is running: folders may come and go while they are read."""
    partial = (runs / ".steps" / ".partial").glob(f"{step}-*")
    parents = (Path(parent) for folder in partial for parent, _, _ in os.walk(folder))
    return [parent for parent in parents if parent.name.startswith("checkpoint-")]


def starts(step: str, events: Path) -> int:
    """Count how often a step has started."""
    if not events.exists():
        return 0
    entries = [json.loads(line) for line in events.read_text().splitlines() if line.endswith("}")]
    return sum(entry["step"].startswith(step) and entry["event"] == "started" for entry in entries)


def test_a_run_killed_inside_every_step_ends_with_the_same_weights(recipe_file: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_command(*command(recipe_file, whole), *METHODS)
    for step in STEPS:
        # A step of milliseconds may be over when the step before it is killed: then it is made to run again.
        again = [*METHODS, "--from", step]
        assert kill_inside(step, recipe_file, killed, *METHODS) or kill_inside(step, recipe_file, killed, *again), step
        assert not any((killed / ".steps").glob(f"{step}-*/model.safetensors")) or step not in MODELS
    last = [*command(recipe_file, killed), *METHODS, "--verbose"]
    done = run_command(*last)
    assert done.stderr.count("skipped") >= len(STEPS) - 2
    assert weights(killed) == weights(whole)
    assert read_report(killed / "tiny").verdicts[0].winner is not None
    assert not list((killed / ".steps" / ".partial").iterdir())


def test_several_cuts_killed_between_them_end_with_the_same_weights(recipe_file: Path, tmp_path: Path) -> None:
    whole, killed, cuts = tmp_path / "whole", tmp_path / "killed", ["--set=prune.cuts=2", "--until=prune"]
    run_command(*command(recipe_file, whole), *cuts)
    for step in ("cut-1", "recover-1", "cut"):
        assert kill_inside(step, recipe_file, killed, *cuts), step
    run_command(*command(recipe_file, killed), *cuts)
    ends = [
        {path.parent.name: file_digest(path) for path in (runs / ".steps").glob("*/model.safetensors")}
        for runs in (whole, killed)
    ]
    assert ends[0] == ends[1]
    assert len(ends[0]) == len(("finetune", "distill", "cut-1", "recover-1", "cut", "recover"))
    (last,) = (name for name in ends[0] if name.startswith("recover-") and not name.startswith("recover-1-"))
    shape = read_info(killed / ".steps" / last).shape
    assert shape is not None
    assert (sum(shape.heads), sum(shape.ffn)) == (3, 32)


def started(runs: Path) -> Counter[str]:
    """Count how often each step has started."""
    events = map(json.loads, (runs / "tiny" / "events.jsonl").read_text().splitlines())
    return Counter(event["step"] for event in events if event["event"] == "started")


def test_a_killed_cut_to_a_speedup_and_vocabulary_end_with_the_same_weights(recipe_file: Path, tmp_path: Path) -> None:
    given = tmp_path / "phone.json"
    given.write_text(table(layer=0.9).model_dump_json())
    goal = f"to: {{speedup: 30}}, latency_table: {given}, vocabulary: seen,"
    recipe_file.write_text(recipe_file.read_text().replace("heads: 0.25, ffn: 0.5,", goal))
    whole, killed, options = tmp_path / "whole", tmp_path / "killed", ["--set=student.layers=2", "--until=vocabulary"]
    run_command(*command(recipe_file, whole), *options)
    for step in ("cut", "vocabulary"):
        assert kill_inside(step, recipe_file, killed, *options), step
    run_command(*command(recipe_file, killed), *options)
    ends = [
        {path.parent.name: file_digest(path) for path in (runs / ".steps").glob("*/model.safetensors")}
        for runs in (whole, killed)
    ]
    assert ends[0] == ends[1]
    assert len(ends[0]) == len(("finetune", "distill", "cut", "recover", "vocabulary"))
    once, twice = ("data", "finetune", "distill", "recover"), ("cut", "vocabulary")
    assert started(killed) == Counter(dict.fromkeys(once, 1) | dict.fromkeys(twice, 2))
    (cut,) = (killed / ".steps").glob("cut-*")
    shape = read_info(cut).shape
    assert shape is not None
    assert shape.layers == 1
    assert not list((killed / ".steps" / ".partial").iterdir())


def test_a_killed_latency_table_is_measured_again_and_nothing_before_it(recipe_file: Path, tmp_path: Path) -> None:
    runs, options = tmp_path / "runs", ["--until=check-speedup"]
    recipe_file.write_text(recipe_file.read_text().replace("heads: 0.25, ffn: 0.5,", "to: {speedup: 1.01},"))
    assert kill_inside("latency", recipe_file, runs, *options)
    assert not list((runs / ".steps").glob("latency-*"))
    run_command(*command(recipe_file, runs), *options)
    assert started(runs) == Counter({"data": 1, "workload": 1, "latency": 2, "check-speedup": 1})
    (folder,) = (runs / ".steps").glob("latency-*")
    assert read_table(folder / TABLE_FILE).layers == 1
    assert not list((runs / ".steps" / ".partial").iterdir())


@pytest.fixture
def recipe_to_a_speedup(recipe_file: Path) -> Path:
    """A student of two layers with its own vocabulary is cut to a goal that is measured, and loses pieces."""
    text = recipe_file.read_text().replace("heads: 0.25, ffn: 0.5,", "to: {speedup: 1.01}, vocabulary: seen,")
    recipe_file.write_text(text.replace("student: {layers: 1}", "student: {layers: 2, vocabulary: {min_count: 40}}"))
    return recipe_file


def test_a_cut_killed_while_it_times_an_attempt_ends_with_the_same_weights(
    recipe_to_a_speedup: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def run(killed_attempt: int, runs: Path) -> CommandProcess:
        words = [*command(recipe_to_a_speedup, runs), "--until=recover", "--verbose"]
        return run_script(SLOWER, str(killed_attempt), *words, timeout=PATIENCE)

    assert run(0, whole).stderr.count("times faster") >= 2
    shutil.copytree(whole, killed, ignore=shutil.ignore_patterns("cut-*", "recover-*", "events.jsonl"))
    assert run(2, killed).returncode == -signal.SIGKILL
    assert run(0, killed).returncode == 0
    assert started(killed) == Counter({"cut": 2, "recover": 1})
    assert weights(killed) == weights(whole)
    assert not list((killed / ".steps" / ".partial").iterdir())


def test_two_processes_train_together_and_one_does_the_rest(recipe_to_a_speedup: Path, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    compress = [str(SLOWER), "0", "run", str(recipe_to_a_speedup), "--runs", str(tmp_path), "--set=finetune.epochs=12"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    launched = [*launcher, *compress]
    done = subprocess.run(launched, env=environment, timeout=PATIENCE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("reading rows: ") == 1
    assert set(started(tmp_path).values()) == {1}
    models = ("finetune", "build-student", "student-vocabulary", "distill", "cut", "recover", "vocabulary")
    assert {"workload", "latency", "check-speedup", *models} <= started(tmp_path).keys()
    result = read_report(tmp_path / "tiny").result("teacher/torch-fp32", "cpu")
    assert result is not None
    assert result.test is not None
    assert result.test.primary.value > 0.9
    (folder,) = (tmp_path / ".steps").glob("vocabulary-*")
    info = read_info(folder)
    assert info.shape is not None
    assert info.vocabulary is not None
    assert (sum(info.shape.heads), sum(info.shape.ffn)) < (8, 128)


@pytest.mark.parametrize("step", ["finetune", "distill"])
def test_a_limit_of_minutes_ends_at_the_update_that_was_decided_before_the_kill(step, recipe_file, tmp_path):
    runs, limits = tmp_path / "runs", [f"--set={step}.epochs=1000", f"--set={step}.minutes=0.1", f"--until={step}"]
    limited = [*command(recipe_file, runs), *limits]
    running = start_command(*limited)
    while running.poll() is None and not (ends := decided_ends(runs, step)):
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    done = run_command(*limited, "--verbose")
    assert "resuming from the checkpoint" in done.stderr
    (folder,) = (runs / ".steps").glob(f"{step}-*")
    training = read_info(folder).training
    assert training is not None
    assert training.updates == 2 * ends[0] < 10_000


def decided_ends(runs: Path, step: str) -> list[int]:
    """Return the update after which the rate falls, once a checkpoint has it."""
    with suppress(OSError):  # replaced by the next checkpoint meanwhile
        states = [json.loads((folder / "state.json").read_text()) for folder in checkpoints(step, runs)]
        return [tail for state in states if (tail := state.get("tail"))]
    return []


def test_a_kill_while_workers_time_leaves_none_of_them(finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run.parent, tmp_path / "copy", symlinks=True)
    runs, recipe = tmp_path / "copy" / "runs", tmp_path / "copy" / "tiny.yaml"
    again = ["run", str(recipe), "--runs", str(runs), "--set=publish=null"]
    running = start_command(*again, "--from", "measure")
    workers: list[psutil.Process] = []
    deadline = time.monotonic() + PATIENCE
    while not workers and running.poll() is None and time.monotonic() < deadline:
        workers = psutil.Process(running.pid).children(recursive=True)
        time.sleep(0.01)
    time.sleep(1.0)  # a worker that has just started has not read anything yet
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert workers
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    done = run_command(*again, "--verbose")
    assert "measure: nothing changed, skipped" in done.stderr  # the earlier result was not touched
    run_command(*again, "--from", "measure")
    assert read_report(runs / "tiny").verdicts[0].winner is not None
    assert not list((runs / ".steps" / ".partial").iterdir())
