"""Whether one model can follow others, read from their configs: layers that are paired, labels and pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedTokenizerBase

from compress.errors import CompressError
from compress.losses.distillation.relation import relation_heads
from compress.model_info import TaskInfo
from compress.model_sources import source_kind
from compress.models.checkpoint_task import checkpoint_task
from compress.models.encoder_parts import head_size
from compress.models.heads import head_named
from compress.models.load_save import TOKENIZER_FILES, load_tokenizer, read_config
from compress.models.nonuniform_models import config_layer_shapes
from compress.models.student.build_student import changes_shape, plan_student_shape
from compress.pipeline.forecast.estimate_shapes import local_folder
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


def config_in(told: Mapping[str, Any]) -> PreTrainedConfig | None:
    """The config that a config.json holds; None where it is not on this machine and only a card is."""
    if told.get("num_hidden_layers", told.get("n_layers")) is None:
        return None
    config: PreTrainedConfig = CONFIG_MAPPING[told["model_type"]].from_dict(dict(told))
    return config


def teacher_widths(told: Mapping[str, Any]) -> Widths | None:
    """Those of a model with this config.json, as far as it is known."""
    config = config_in(told)
    return None if config is None else [heads * head_size(config) for heads, _ in config_layer_shapes(config)]


def student_widths(told: Mapping[str, Any], student: Student | None) -> Widths | None:
    """Those of what is made of a model with this config.json; None where that is unknown, or cannot be made."""
    config = config_in(told)
    if config is None or student is None or (student.source and not changes_shape(student)):
        return teacher_widths(told)
    try:
        form = plan_student_shape(config, student)
    except CompressError:  # told where shapes are checked
        return None
    return [heads * form.head_size for heads, _ in form.shapes]


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
