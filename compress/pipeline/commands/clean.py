"""`compress clean`: removes cached steps, finished or partial, that no run uses, and the cache of encoded rows."""

import shutil
from pathlib import Path
from typing import Any

from compress.data.encoded_cache import ENCODED_FOLDER
from compress.pipeline.run_lock import LOCK_FILE, PREVIOUS_FOLDER, TRAININGS_FOLDER, named_steps, searches_folder
from compress.pipeline.step_store import StepStore


def clean(runs: Path, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """Remove every step folder below ``runs`` that no lock.json names and no process is using, and encoded rows.

    Locks are those of runs and of searches.

    A lock that cannot be read stops everything, since it may name any.
    """
    store, named = StepStore(runs), _named(runs)
    finished = [(path, "no run uses it") for path in sorted(store.steps.glob("[!.]*"))]
    partial = [(path, "unfinished, and no run uses it") for path in sorted((store.steps / ".partial").glob("*"))]
    encoded = [(store.steps / ENCODED_FOLDER, "texts as tokens, made again where a step needs them")]
    rows = []
    for folder, why in [*finished, *partial, *encoded]:
        step = folder.name.removesuffix(".adopted")  # what a run takes over from another
        if not folder.is_dir() or step in named or store.is_held(step):
            continue
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        if not dry_run:
            if folder.name in _named(runs):  # a run has begun meanwhile
                continue
            store.discard(folder)
        rows.append({"folder": str(folder), "bytes": size, "why": why})
    if not dry_run:
        for leftover in (".trash", ".launch"):
            shutil.rmtree(store.steps / leftover, ignore_errors=True)
    return rows


def _named(runs: Path) -> set[str]:
    """Return the step folders that runs and searches use."""
    folders = ("*", f"*/{PREVIOUS_FOLDER}/*", f"*/{TRAININGS_FOLDER}/*")
    roots = (runs, searches_folder(runs))
    return set[str]().union(
        *(named_steps(lock) for root in roots for each in folders for lock in root.glob(f"{each}/{LOCK_FILE}"))
    )
