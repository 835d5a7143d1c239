"""How each model of a run was made from another, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compress.errors import CompressError
from compress.model_info import find_info
from compress.pipeline.forecast.estimate_shapes import local_folder
from compress.pipeline.strip_paths import portable
from compress.recipe.schema import Recipe
from compress.recipe.training_schema import Student
from compress.report.report_schema import Provenance

if TYPE_CHECKING:
    from compress.models.student.build_student import Form

STARTS = {"teacher": "", "slice": "the most important parts of ", "svd": "the principal directions of "}
"""What is taken of the layers that a student is made of."""


def makings(recipe: Recipe, folders: Mapping[str, Path]) -> dict[str, Provenance]:
    """By model, of those whose folders are there: `teacher`, `student`, `pruned`."""
    starts: dict[str, str] = {}
    if recipe.student and "student" in folders:
        starts["student"] = _start(recipe, recipe.student, folders.get("teacher"))
    if "pruned" in folders:
        starts["pruned"] = f"the {'student' if recipe.student else 'teacher'}, pruned"
    told = {model: find_info(folders[model]) for model in starts}
    return {
        model: Provenance(start=start, augmented=info.augmented if (info := told[model]) else None)
        for model, start in starts.items()
    }


def _start(recipe: Recipe, student: Student, teacher: Path | None) -> str:
    """`layers 1, 3, 5 of the teacher`, or `random weights`."""
    from compress.models.load_save import read_config
    from compress.models.student.build_student import form_of, reshapes

    name, folder = "the teacher", teacher
    if student.source is not None:
        name, folder = portable(recipe)["student"]["source"], local_folder(student.source, student.revision)
        if not reshapes(student):
            return f"the checkpoint {name}"
    try:
        return f"parts of {name}" if folder is None else _told(form_of(read_config(folder), student), name)
    except CompressError:  # a checkpoint that went away since; the student stands all the same
        return f"parts of {name}"


def _told(form: Form, name: str) -> str:
    if form.start == "random":
        return "random weights"
    layers = ("layer " if len(form.chosen) == 1 else "layers ") + ", ".join(map(str, form.chosen))
    factors = f"; word vectors in {form.factors} factors" if form.factors else ""
    return f"{STARTS[form.start]}{layers} of {name}{factors}"
