"""The step that scores all parts of a shared student, as they are, on the rows that its training did not see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from compress.recipe.student_schema import Part
from compress.steps.shared_step import SECTION

if TYPE_CHECKING:
    from compress.pipeline.graph import Plan
    from compress.pipeline.step_context import StepContext

COMPARE, PARTS_FILE = "compare-parts", "parts.json"


def add_comparison(plan: Plan, cards: Sequence[Path] = ()) -> None:
    """The step that compares the parts of the plan's shared student."""
    settings = {"metric": plan.recipe.task.metric, "seed": plan.recipe.seed}
    plan.add(COMPARE, COMPARE, settings, ["data", SECTION], partial(compare, seed=plan.recipe.seed))


def compare(context: StepContext, seed: int) -> None:
    """Score every part, and write what they reach."""
    from compress.train.shared_student import compare_parts

    compared = compare_parts(context.inputs[SECTION], context.inputs["data"], seed, context.console)
    rows = [{**part.model_dump(mode="json"), "score": score} for part, score in compared]
    context.write_json(PARTS_FILE, {"parts": rows})


def read_scores(folder: Path) -> dict[str, float]:
    """Return what each part scored, by its name."""
    rows = json.loads((folder / PARTS_FILE).read_bytes())["parts"]
    return {Part.model_validate({key: row[key] for key in Part.model_fields}).name: row["score"] for row in rows}
