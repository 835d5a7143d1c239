"""The trainings of finalists on a Ray cluster, whose machines share the folder of runs.

Each is a task that runs a recipe up to that training; its result is in the step store then, where the search finds it
done. What a killed worker or driver leaves there, the next attempt goes on from. Timing stays on the search's machine.
"""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compress.console import Console
from compress.environment import LIBRARIES, require, versions
from compress.errors import CompressError, UsageError
from compress.pipeline.plan import make_plan
from compress.pipeline.run import Options, execute, read_recipe
from compress.recipe.load import dump_recipe
from compress.recipe.schema import Recipe
from compress.recipe.student_schema import AnyStudent
from compress.storage.file_names import name_with

PATIENCE = 5.0
"""Seconds in which a cluster has to answer."""
PASSED_ON = ("COMPRESS_DATA", "COMPRESS_CACHE", "HF_HOME", "HF_HUB_OFFLINE")
"""Environment variables that recipes may need."""


def train_on_cluster(address: str, final: Recipe, options: Options, folder: Path, console: Console) -> None:
    """Run the trainings of the finalists that are not done yet, all at once.

    Args:
        address: of the cluster's head, `host:port`, or `auto` for the one that this machine belongs to.
        final: the recipe of the finalists.
        options: of the search.
        folder: of the search, for what each task logs.
        console: names each training as it ends.
    """
    threads, here = training_threads(), versions(LIBRARIES)
    with _cluster(address) as ray:
        most = max((node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
        if most < threads:
            hint = f"start its machines with {threads} CPUs, or set OMP_NUM_THREADS for the search"
            reason = f"no machine of {address} has the {threads} cores that trainings here use"
            raise UsageError(f"--ray: {reason}: with fewer threads their results would differ.", hint=hint)
        task = ray.remote(num_cpus=threads, max_retries=3)(train)
        places = {"runs": options.runs.absolute(), "cards": tuple(map(Path.absolute, options.cards)), "cwd": Path.cwd()}
        given: dict[str, Any] = {"threads": threads, "libraries": here, **places}
        waiting = {
            task.remote(dump_recipe(recipe), folder.absolute() / name, **given): name
            for name, recipe in trainings(final).items()
        }
        failures = list[str]()
        while waiting:
            (done,), _ = ray.wait([*waiting], num_returns=1)
            name = waiting.pop(done)
            try:
                console.note(f"{name}: trained on {ray.get(done)}")
            except ray.exceptions.RayError as error:
                failures.append(f"{name}: {_reason(error)}")
    if failures:
        hint = "the other trainings are stored; run the search again, or without --ray"
        raise CompressError(f"on the cluster {'; '.join(failures)}", hint=hint)


def training_threads() -> int:
    """Return how many threads a training has on this machine."""
    import torch

    return torch.get_num_threads()


def trainings(final: Recipe) -> dict[str, Recipe]:
    """Return a recipe for each finalist, by its model's name: with what its training needs, and no more.

    Students without attention are called by their order: those of its kind before it stay.
    """
    alone = {"cascade": (), "publish": None}
    found = dict[str, Sequence[AnyStudent]]()
    if final.student is not None:
        found["student"] = (final.student,)
    found |= {name: (part,) for name, part in final.parts.items()}
    before = dict[str, list[AnyStudent]]()
    for name, student in final.light_students.items():
        before.setdefault(student.kind, []).append(student)
        found[name] = tuple(before[student.kind])
    return {
        name: final.model_copy(
            update=alone
            | {"name": name_with(final.name, f"-{name}"), "students": tuple(students)}
            | ({} if name == "student" else {"prune": None})
        )
        for name, students in found.items()
    }


def train(
    recipe: str,
    folder: Path,
    *,
    runs: Path,
    cards: Sequence[Path],
    cwd: Path,
    threads: int,
    libraries: Mapping[str, str],
) -> str:
    """Run a recipe up to its last training, on a machine of the cluster; returns the machine's name."""
    host = socket.gethostname()
    if not (runs.is_dir() and cwd.is_dir()):
        raise CompressError(f"{host} does not have {runs}; the folder of runs must be shared, at the same place.")
    mine = versions(libraries)
    if different := [f"{name} {mine.get(name, 'missing')}" for name in libraries if mine.get(name) != libraries[name]]:
        wanted = ", ".join(f"{name} {libraries[name]}" for name in libraries if mine.get(name) != libraries[name])
        raise CompressError(f"{host} has {', '.join(different)}, where the search has {wanted}.")
    os.chdir(cwd)
    import torch

    torch.set_num_threads(threads)
    path = folder / "recipe.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(recipe, encoding="utf-8")
    plan = make_plan(read_recipe(path, (), tuple(cards)), tuple(cards))
    last = plan.models[-1].step
    options = Options(runs=runs, cards=tuple(cards), folder=folder, until=last)
    outcome = execute(plan, options, Console("quiet")).outcome
    if last not in outcome.records:
        reasons = "; ".join(f"{step}: {reason}" for step, reason in outcome.failures.items())
        raise CompressError(reasons or f"{last} was not made")
    return host


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Connect to a cluster; leave it afterwards."""
    ray = require("ray", "ray")
    host, _, port = address.partition(":")
    if address != "auto":
        if not port.isdecimal():
            raise UsageError(f"--ray: '{address}' is no address.", hint="--ray 10.0.0.1:6379, or --ray auto")
        try:
            socket.create_connection((host, int(port)), PATIENCE).close()
        except OSError as error:
            raise UsageError(f"--ray: nothing answers at {address} ({error}).", hint="ray start --head") from error
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    try:
        ray.init(address, runtime_env={"env_vars": passed}, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise UsageError(f"--ray: no cluster was found at {address}: {first}", hint="ray start --head") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _reason(error: Exception) -> str:
    """Return the message of our own error in a worker, or the first line of Ray's."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, CompressError):
        return cause.message
    return str(cause or error).strip().rpartition("\n")[2]
