"""`compress clean`: removes cached steps, finished or partial, that no run uses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from compress.errors import CompressError
from compress.pipeline.step_store import StepStore

LOCK_FILE = "lock.json"


def clean(runs: Path, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """Remove every step folder below ``runs`` that no run's lock.json names and no process is using."""
    store = StepStore(runs)
    named = _named(runs)
    rows = []
    for folder, why in [*_finished(store), *_partial(store)]:
        if folder.name in named or store.is_held(folder.name):
            continue
        rows.append({"folder": str(folder), "bytes": _size(folder), "why": why})
        if not dry_run:
            store.discard(folder)
    if not dry_run:
        for leftover in (".trash", ".launch"):
            shutil.rmtree(store.steps / leftover, ignore_errors=True)
    return rows


def _named(runs: Path) -> set[str]:
    """Return the step folders that runs name; a lock that cannot be read stops everything, since it may name any."""
    named: set[str] = set()
    for lock in runs.glob(f"*/{LOCK_FILE}"):
        named |= named_steps(lock)
    return named


def named_steps(lock: Path) -> set[str]:
    """Return the step folders that a run's lock names, and those of an earlier run whose report still exists."""
    try:
        content = json.loads(lock.read_bytes())
        return {*content["steps"].values(), *content.get("earlier", ())}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise CompressError(
            f"{lock} cannot be read, so which steps its run needs is unknown; nothing is removed.",
            hint=f"delete {lock.parent}, and run its recipe again",
        ) from error


def _finished(store: StepStore) -> list[tuple[Path, str]]:
    folders = [path for path in sorted(store.steps.glob("*")) if path.is_dir() and not path.name.startswith(".")]
    return [(folder, "no run uses it") for folder in folders]


def _partial(store: StepStore) -> list[tuple[Path, str]]:
    return [
        (folder, "unfinished, and no run uses it")
        for folder in sorted((store.steps / ".partial").glob("*"))
        if folder.is_dir()
    ]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
