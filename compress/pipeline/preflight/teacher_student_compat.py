"""Whether one model can follow others, read from their configs: layers that are paired, labels and pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from compress.errors import ModelError
from compress.losses.distillation.relation import relation_heads
from compress.model_info import ShapeInfo, TaskInfo
from compress.model_shapes import shape_of_config, student_shape
from compress.model_sources import local_folder, source_kind
from compress.models.checkpoint_task import checkpoint_task
from compress.models.heads import head_named
from compress.models.load_save import TOKENIZER_FILES, load_tokenizer, read_config
from compress.recipe.loss_schema import Relation
from compress.recipe.schema import Task
from compress.recipe.training_schema import Distill, FurtherTeacher, Student
from compress.tasks import kind_of
from compress.train.distillation.layer_map import layer_map
from compress.train.distillation.layer_pairs import LayerPairs, uses_layer_map
from compress.train.distillation.phases import loss_phases
from compress.train.distillation.teachers import check_teacher_head, check_teacher_labels
from compress.train.distillation.tokenizer_checks import check_same_vocabulary

Widths = Sequence[int]
"""How many numbers the queries of each layer have, all heads together."""


def known_shape(config: Mapping[str, Any]) -> ShapeInfo | None:
    """Return the shape in a config.json; None where only the model's card is on this machine."""
    return shape_of_config(config) if "vocab_size" in config else None


def attention_widths(config: Mapping[str, Any], student: Student | None = None) -> Widths | None:
    """Return the widths of a model with this config.json, or of a student made from it.

    None where the model is not on this machine, or such a student cannot be made (which the check of shapes reports).
    """
    shape = known_shape(config)
    if shape is None or shape.head_size is None:
        return None
    try:
        shape = student_shape(shape, student) if student else shape
    except ModelError:
        return None
    return [heads * (shape.head_size or 0) for heads in shape.heads]


def check_layers(settings: Distill, student: Widths | None, teacher: Widths | None, *, pruned: bool = False) -> None:
    """Refuse losses with nothing to learn from, and layers or relation heads that models of these widths do not have.

    Of a ``pruned`` student only the depth is known.
    """
    stages = loss_phases(settings)
    if student is None or teacher is None:
        return
    depths = len(student), len(teacher)
    measured = settings.layer_map == "measured" or not uses_layer_map(stages)
    comparisons = LayerPairs(stages, () if measured else layer_map(settings.layer_map, *depths), *depths)
    for number, stage in enumerate(stages):
        section = stage.sections.get("relation")
        if isinstance(section, Relation) and section.heads is not None and not pruned:
            for ours, theirs in comparisons.pairs(number, "relation"):
                relation_heads(student[ours], teacher[theirs], 1, section.heads)


def check_labels(who: str, named: FurtherTeacher, asked: Task, task: TaskInfo | None) -> None:
    """Refuse a folder whose head answers another question or, once the labels are known, has others."""
    if source_kind(named.source, "teachers") != "folder":
        return
    folder = Path(named.source).expanduser()
    saved = checkpoint_task(folder, read_config(folder))
    if task is None:
        check_teacher_head(who, saved, head_named(kind_of(asked).head))
    else:
        check_teacher_labels(who, saved, task)


def check_pieces(
    who: str, found: PreTrainedTokenizerBase | None, expected: PreTrainedTokenizerBase | None, hint: str
) -> None:
    """Refuse a tokenizer with other pieces than the teacher's, where both are on this machine."""
    if found is not None and expected is not None:
        check_same_vocabulary(who, found, expected, hint)


def tokenizer_of(
    source: str, revision: str | None = None, cards: Sequence[Path] = ()
) -> PreTrainedTokenizerBase | None:
    """That of a source whose files are on this machine."""
    folder = local_folder(source, revision, cards)
    if folder is None or not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None
    return load_tokenizer(folder)
