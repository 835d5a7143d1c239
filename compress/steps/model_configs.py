"""What configs show of a recipe's models before anything runs: families, shapes, widths of attention."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.cards import find_teacher
from compress.errors import ModelError
from compress.families import check_freeze, family_named
from compress.model_folder.model_info import ShapeInfo, TaskInfo
from compress.model_shapes import shape_of_config, student_shape
from compress.model_sources import local_folder, refuse_exported, source_kind
from compress.recipe.schema import Recipe, Teacher
from compress.recipe.student_schema import Student
from compress.recipe.training_schema import Training

Config = Mapping[str, Any]
Check = tuple[str, Callable[[], object]]
"""The section that a check is about, and the check, which raises."""


@dataclass(frozen=True)
class ModelConfigs:
    """A recipe with the configs of its models, as far as they are on this machine."""

    recipe: Recipe
    teacher: Config
    origin: Config
    """Of what the student is made from: its own checkpoint or the teacher."""
    cards: Sequence[Path] = ()
    task: TaskInfo | None = None
    """With its labels, where they are known before the data are prepared."""


def configs_of(recipe: Recipe, cards: Sequence[Path] = (), task: TaskInfo | None = None) -> ModelConfigs:
    """Read the configs of a recipe's models; an error names the model."""
    teacher = origin = _named_config("teacher", recipe.teacher, cards)
    if recipe.student and recipe.student.source:
        origin = _named_config("student", recipe.student, cards)
    return ModelConfigs(recipe, teacher, origin, cards, task)


def config_of(source: str, revision: str | None, cards: Sequence[Path] = ()) -> Config:
    """Return the config.json of a source that is on this machine, else the family that its card names, else nothing."""
    folder = local_folder(source, revision, cards)
    if folder is not None:
        refuse_exported(folder)
        return _read_config(folder / "config.json")
    is_card = source_kind(source, "teachers", cards) == "card"
    return {"model_type": find_teacher(source, cards).family} if is_card else {}


def known_shape(config: Config) -> ShapeInfo | None:
    """Return the shape in a config.json; None where only the model's card is on this machine."""
    return shape_of_config(config) if "vocab_size" in config else None


def shape_made_of(config: Config, student: Student | None) -> ShapeInfo | None:
    """Return the shape of a model with this config, or of a student made from it.

    None where the model is not on this machine, or such a student cannot be made (which the check of shapes reports).
    """
    try:
        shape = known_shape(config)
        return student_shape(shape, student) if shape and student else shape
    except ModelError:
        return None


def attention_widths(config: Config, student: Student | None = None) -> list[int] | None:
    """Return the width of the queries of each layer of a model with this config, or of a student made from it.

    None where it is not known.
    """
    shape = shape_made_of(config, student)
    return query_widths(shape) if shape else None


def query_widths(shape: ShapeInfo) -> list[int] | None:
    """Return the width of the queries of each layer; None where it is not known."""
    return [heads * shape.head_size for heads in shape.heads] if shape.head_size else None


def check_frozen_layers(settings: Training, shape: ShapeInfo | None) -> None:
    """Refuse to freeze layers that a model of this shape, where it is known, does not have."""
    if isinstance(settings.freeze, int) and shape:
        check_freeze(family_named(shape.family), shape.layers, settings.freeze)


def _named_config(key: str, named: Teacher | Student, cards: Sequence[Path]) -> Config:
    try:
        return config_of(str(named.source), named.revision, cards)
    except ModelError as error:
        raise ModelError(f"{key}: {error.message}", hint=error.hint) from error


def _read_config(path: Path) -> Config:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise ModelError(f"{path} names no model_type.")
    return content
