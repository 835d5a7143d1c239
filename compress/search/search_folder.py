"""The folder of a search, `searches/NAME` beside the folder of runs: what is in it, and the list of all of them."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compress.errors import ModelError, first_error
from compress.pipeline.run_lock import LOCK_FILE, searches_folder
from compress.recipe.student_schema import Part
from compress.search.candidates import SearchInfo

SEARCH_FILE, FINALISTS_FILE, WINNER_FILE = "search.json", "finalists.yaml", "winner.yaml"
RECIPES_FOLDER = "recipes"
"""Of every model that was trained."""


def read_search(folder: Path) -> SearchInfo:
    """Return what a search looked at and found; raise `ModelError` where its file cannot be read."""
    file = folder / SEARCH_FILE
    try:
        return SearchInfo.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        reason = first_error(error) if isinstance(error, ValidationError) else error.strerror
        raise ModelError(f"{file} cannot be read: {reason}.", hint="compress search writes it again") from error


def compared_before(folder: Path, parts: Sequence[Part]) -> SearchInfo | None:
    """Return the search that compared these parts; None where there is none."""
    try:
        found = read_search(folder)
    except ModelError:
        return None
    scored = {
        each.student.units for each in found.candidates if isinstance(each.student, Part) and each.score is not None
    }
    return found if scored == {part.units for part in parts} else None


def listed_searches(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for each search: its budget, how many candidates it looked at and trained on, and its winner."""
    root = searches_folder(options.runs)
    for folder in sorted({file.parent for name in (SEARCH_FILE, LOCK_FILE) for file in root.glob(f"*/{name}")}):
        row: dict[str, Any] = {"name": folder.name}
        row |= dict.fromkeys(("budget", "goal", "candidates", "trained on", "run"))
        if not (folder / SEARCH_FILE).is_file():
            yield row | {"winner": "not finished"}
            continue
        try:
            found = read_search(folder)
        except ModelError as error:
            yield row | {"winner": error.message}
            continue
        row |= {"budget": found.budget_text, "goal": found.goal, "candidates": len(found.candidates)}
        row |= {"trained on": sum(each.is_finalist for each in found.candidates), "run": found.run}
        yield row | {"winner": found.winner or ("none" if found.finished else "not finished")}
