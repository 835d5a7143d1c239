"""`--smoke`: every step of a recipe with a two-layer random model and a few rows, to check in a minute that it runs.

Its results mean nothing and are stored separately.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from compress.pipeline.preflight.model_compatibility import config_of
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.distill_schema import Distill
from compress.recipe.finetune_schema import Finetune
from compress.recipe.loss_schema import Losses
from compress.recipe.measure_schema import Measure, TimingGrid
from compress.recipe.prune_schema import LATENCY_KEYS, Prune, PruneTo
from compress.recipe.schema import Publish, Recipe
from compress.recipe.student_schema import Student, Vocabulary, VocabularyRule
from compress.recipe.training_schema import Training
from compress.storage.atomic_write import atomic_replace_folder

SMOKE_FOLDER = ".smoke"
"""The folder of smoke runs, below that of all runs."""
ROWS = 96
"""Rows of each role."""
LABELLED = 48
"""Rows of train with labels, where the recipe uses those of some only."""
STEPS, BATCH = 2, 8
"""Optimizer steps of each training, and rows of each batch."""
NARROW: Mapping[str, int] = {"hidden": 24, "ffn": 48, "factors": 8}
"""Widths in place of a student's; the teacher has hidden 32 and an FFN of 64."""
DEFAULT_FAMILY = "bert"
"""Used where the teacher's family is known only to the hub."""


def smoke_recipe(recipe: Recipe, root: Path, cards: Sequence[Path]) -> Recipe:
    """Return the same recipe, small in everything that takes time."""
    config = config_of(recipe.teacher.source, recipe.teacher.revision, cards)
    family = str(config.get("model_type", DEFAULT_FAMILY))
    teacher = _tiny_model(root / f"teacher-{family}", family)
    labelled = recipe.task.data.labelled and min(LABELLED, recipe.task.data.labelled)
    data = recipe.task.data.model_copy(update={"limit": ROWS, "labelled": labelled})
    changes: dict[str, Any] = {
        "task": recipe.task.model_copy(update={"data": data}),
        "teacher": recipe.teacher.model_copy(update={"source": str(teacher), "revision": None}),
        "finetune": recipe.finetune or Finetune(),  # the random teacher has no head, even if the recipe's has one
        "student": recipe.student and _student(recipe.student),
        "prune": recipe.prune and _prune(recipe.prune),
        "measure": _measure(recipe.measure),
        "publish": recipe.publish and Publish(to=str(root / "zoo"), name=recipe.publish.name),
    }
    return recipe.model_copy(update=changes).map_trainings(partial(_training, root=root))


def _student(student: Student) -> Student:
    """One layer, initialised in the same way; narrower and factorised where the recipe's is."""
    widths = {key: width for key, width in NARROW.items() if getattr(student, key) is not None}
    if student.heads is not None:
        widths["heads"] = 3 if "hidden" in widths else 2  # heads of the teacher's size, or of another
    return Student(
        layers=1, choose=student.choose, start=student.start, vocabulary=_vocabulary(student.vocabulary), **widths
    )


def _vocabulary(rule: Vocabulary | None) -> Vocabulary | None:
    """Return a rule that fits the tiny model's pieces; None without one."""
    return "seen" if isinstance(rule, VocabularyRule) and rule.keep else rule


def _prune(prune: Prune) -> Prune:
    """Few batches; a share instead of a speed-up, which models so small cannot reach."""
    shares = {"to": PruneTo(parameters=0.7), **dict.fromkeys(LATENCY_KEYS)} if prune.has_latency_goal else {}
    return prune.model_copy(update={"batches": 2, "vocabulary": _vocabulary(prune.vocabulary), **shares})


def _measure(settings: Measure) -> Measure:
    """Everything that the recipe measures, each at one value and as short as possible."""
    grid = settings.grid
    return Measure(
        rounds=3,
        processes=1,
        seconds=0.02,
        bootstrap=100,
        grid=grid and TimingGrid(batch=grid.batch[:1], length=grid.length[:1]),
        callers=settings.callers[:1],
        memory=settings.memory[:1],
        robustness=settings.robustness[:1],
    )


def _training(settings: Training, root: Path) -> Training:
    """Two updates; a distillation without further teachers, which a random model cannot be."""
    batch = max(BATCH, 2 * Launch.from_environment().world)  # some losses need two texts in each process
    changes: dict[str, Any] = {"max_steps": STEPS, "batch_size": batch, "evaluations": 1}
    changes |= {"precision": "fp32", "freeze": None}
    settings = settings.single()
    if isinstance(settings, Finetune) and settings.features:  # a tiny model has fewer layers
        settings = settings.model_copy(update={"features": None, "head": "linear", "method": "frozen"})
    if not isinstance(settings, Distill):
        return settings.model_copy(update=changes)
    pairs = settings.layer_map if isinstance(settings.layer_map, str) else ((0, 1),)  # named layers may not exist
    changes |= {"layer_map": pairs, "teachers": (), "losses": _any_heads(settings.losses)}
    if settings.phases:  # each gets an update
        count = len(settings.phases)
        changes["max_steps"] = max(STEPS, count)
        changes["phases"] = tuple(
            phase.model_copy(update={"share": 1 / count, "losses": _any_heads(phase.losses)})
            for phase in settings.phases
        )
    if settings.augment:
        model = _tiny_model(root / f"masked-{DEFAULT_FAMILY}", DEFAULT_FAMILY, masked=True)
        changes["augment"] = settings.augment.model_copy(update={"model": str(model), "copies": 1})
    return settings.model_copy(update=changes)


def _any_heads(losses: Losses) -> Losses:
    """Relations of the last layers in any number of heads: those named may not exist."""
    relation = losses.relation and losses.relation.model_copy(update={"layer": None, "heads": None})
    return losses.model_copy(update={"relation": relation})


def _tiny_model(folder: Path, family: str, masked: bool = False) -> Path:
    """Write a tiny model with a tokenizer of single characters, unless it exists."""
    from compress.models.tiny import write_tiny_model

    if not folder.is_dir():
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
        write_tiny_model(temporary, family, masked=masked)
        atomic_replace_folder(temporary, folder)
    return folder
