"""lock.json of a run's folder: the steps that the run uses, which `clean` keeps; and what is kept of former runs."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compress.environment import LIBRARIES, versions
from compress.errors import CompressError, ModelError, UsageError
from compress.pipeline.graph import Step
from compress.pipeline.step_store import share_folder
from compress.pipeline.steps.package_step import WINNER_FOLDER
from compress.pipeline.steps.pretrain_steps import PRETRAIN
from compress.storage.atomic_write import atomic_write, new_folder
from compress.storage.file_names import STEPS_FOLDER

LOCK_FILE = "lock.json"
REPLACING_FILE = ".replacing"
"""In the folder of a run while its report and winners are replaced, which then may not belong together."""
PREVIOUS_FOLDER = "previous"
"""In the folder of a run or a search: results of its former recipes, each with its winners and lock."""
TRAININGS_FOLDER = "trainings"
"""In the folder of a search: what a cluster trains, each with its lock."""


def searches_folder(runs: Path) -> Path:
    """Return the folder of searches, which is beside that of runs; each has a lock too."""
    return runs.parent / "searches"


def write_lock(folder: Path, planned: Sequence[Step], *, has_report: bool = False) -> None:
    """Write the steps of a run; until the report that the folder has is replaced, they stand beside those of that one.

    A folder that a recipe of another kind has filled is refused, because its report would be replaced.
    """
    reported = None
    if (folder / LOCK_FILE).exists():
        reported = _read(folder / LOCK_FILE)["steps"]
        earlier = PRETRAIN in reported
        if earlier != (PRETRAIN in [step.name for step in planned]):
            raise UsageError(
                f"{folder} holds the results of a {'pretraining' if earlier else 'task'} recipe with the same name.",
                hint="give one of the recipes another name (--set name=…), or another folder of runs (--runs)",
            )
    steps = {step.name: f"{step.name}-{step.fingerprint}" for step in planned}
    lock = {
        "schema_version": 1,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "steps": reported if reported and has_report else steps,
        "planned": sorted(steps.values()) if has_report else [],
        "versions": versions(LIBRARIES),
    }
    atomic_write(folder / LOCK_FILE, json.dumps(lock, indent=2) + "\n")


def named_steps(lock: Path) -> set[str]:
    """Return the step folders that a run's lock names: those of its report, and those of a run that goes on."""
    content = _read(lock)
    return {*content["steps"].values(), *content.get("planned", ())}


def step_folder(run: Path, step: str) -> Path:
    """Return the folder of a step of a finished run, or of what is kept of a former one."""
    name: str = _read(run / LOCK_FILE)["steps"].get(step, step)
    for root in run.absolute().parents:
        if (root / STEPS_FOLDER / name).is_dir():
            return root / STEPS_FOLDER / name
    raise UsageError(f"the result of {step} is not in {STEPS_FOLDER} any more.", hint="compress run makes it again")


def _read(lock: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(lock.read_bytes())
        content["steps"].values()
        return content
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CompressError(
            f"{lock} cannot be read, so which steps its run needs is unknown; nothing is removed.",
            hint=f"delete {lock.parent}, and run its recipe again",
        ) from error


@contextmanager
def replacing(folder: Path) -> Iterator[None]:
    """Mark a run's folder while its report and winners are replaced; the mark of one that is interrupted remains."""
    (folder / REPLACING_FILE).touch()
    yield
    (folder / REPLACING_FILE).unlink(missing_ok=True)


def check_replaced(folder: Path) -> None:
    """Refuse a run's folder whose report and winners may not belong together."""
    if (folder / REPLACING_FILE).is_file():
        reason = "a run was interrupted while it replaced its report and winners, which may not belong together."
        raise ModelError(f"{folder}: {reason}", hint="compress run its recipe again, which ends it")


def keep_in_previous(folder: Path, created: str) -> Path | None:
    """Copy the files and winners of a run or a search to where its former ones are; None if they are there."""
    kept = folder / PREVIOUS_FOLDER / created[:19].replace(":", "-")
    if kept.is_dir() or (folder / REPLACING_FILE).is_file():  # which may not belong together
        return None
    with new_folder(kept) as work:
        for file in sorted(folder.iterdir()):
            if file.is_file():
                shutil.copyfile(file, work / file.name)
        if (folder / WINNER_FOLDER).is_dir():
            share_folder(folder / WINNER_FOLDER, work / WINNER_FOLDER)
    return kept
