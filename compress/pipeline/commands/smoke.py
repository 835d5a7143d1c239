"""`--smoke`: every step of a recipe with a two-layer random model and a few rows, to see in a minute that it runs.

What it gives means nothing and goes into a place of its own.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from compress.cards import find_teacher
from compress.model_sources import source_kind
from compress.pipeline.torchrun_launch import Launch
from compress.recipe.loss_schema import Losses
from compress.recipe.measure_schema import Grid, Measure
from compress.recipe.schema import Publish, Recipe
from compress.recipe.training_schema import Distill, Finetune, Student

Settings = TypeVar("Settings", bound=Distill)

SMOKE = ".smoke"
"""The folder of smoke runs, below that of all runs."""
ROWS = 96
"""Rows of each role."""
STEPS, BATCH = 2, 8
"""Optimizer steps of each training, and rows of each batch."""
NARROW: Mapping[str, int] = {"hidden": 24, "ffn": 48, "factors": 8}
"""What stands for a student's widths; the teacher has 32, and an FFN of 64."""
FAMILY = "bert"
"""Taken where the teacher's family is known only to the hub."""


def smoke_recipe(recipe: Recipe, root: Path, cards: Sequence[Path]) -> Recipe:
    """The same recipe, small in everything that takes time."""
    folder = root / f"teacher-{_family(recipe.teacher.source, cards)}"
    if not folder.is_dir():
        _write_tiny(folder, _family(recipe.teacher.source, cards))
    batch = max(BATCH, 2 * Launch.from_environment().world)  # some losses want two texts in each process
    short: dict[str, Any] = {"max_steps": STEPS, "batch_size": batch, "restarts": 1, "evaluations": 1}
    short |= {"precision": "fp32", "freeze": None}
    changes: dict[str, Any] = {
        "task": recipe.task.model_copy(update={"data": recipe.task.data.model_copy(update={"limit": ROWS})}),
        "teacher": recipe.teacher.model_copy(update={"source": str(folder), "revision": None}),
        "student": recipe.student and _student(recipe.student),
        "measure": _measure(recipe.measure),
        "publish": recipe.publish and Publish(to=str(root / "zoo"), name=recipe.publish.name),
    }
    # The random teacher has no head yet, whatever the recipe's has.
    changes["finetune"] = (recipe.finetune or Finetune()).model_copy(update=short)
    if recipe.distill:
        changes["distill"] = _distilled(recipe.distill, short, root)
    if recipe.prune:
        recover = recipe.prune.recover
        if recover:
            recover = _distilled(recover, short, root)
        changes["prune"] = recipe.prune.model_copy(update={"batches": 2, "recover": recover})
    return recipe.model_copy(update=changes)


def _student(student: Student) -> Student:
    """One layer, made in the same way: from the same start, narrower and factorised where the recipe's is."""
    widths = {key: width for key, width in NARROW.items() if getattr(student, key) is not None}
    if student.heads is not None:
        widths["heads"] = 3 if "hidden" in widths else 2  # heads of the teacher's size, or of none that it has
    return Student(layers=1, choose=student.choose, start=student.start, **widths)


def _measure(settings: Measure) -> Measure:
    """All that the recipe looks at, each at one value and for no longer than it takes to run."""
    grid = settings.grid
    return Measure(
        rounds=3,
        processes=1,
        seconds=0.02,
        bootstrap=100,
        grid=grid and Grid(batch=grid.batch[:1], length=grid.length[:1]),
        callers=settings.callers[:1],
        memory=settings.memory[:1],
        robustness=settings.robustness[:1],
    )


def _distilled(settings: Settings, short: Mapping[str, Any], root: Path) -> Settings:
    """As short as the others; words are replaced by what a tiny model says, and further teachers are left out.

    Those answer the task already, which no random model does.
    """
    changes: dict[str, Any] = {**short, "layer_map": _layer_map(settings), "teachers": ()}
    changes["losses"] = _any_heads(settings.losses)
    if settings.phases:  # each gets an update
        count = len(settings.phases)
        changes["max_steps"] = max(STEPS, count)
        changes["phases"] = tuple(
            phase.model_copy(update={"share": 1 / count, "losses": _any_heads(phase.losses)})
            for phase in settings.phases
        )
    if settings.augment:
        folder = root / f"masked-{FAMILY}"
        if not folder.is_dir():
            _write_tiny(folder, FAMILY, masked=True)
        changes["augment"] = settings.augment.model_copy(update={"model": str(folder), "copies": 1})
    return settings.model_copy(update=changes)


def _any_heads(losses: Losses) -> Losses:
    """Relations between the last layers, in any number of heads: what is named may not be there."""
    relation = losses.relation and losses.relation.model_copy(update={"layer": None, "heads": None})
    return losses.model_copy(update={"relation": relation})


def _layer_map(settings: Distill) -> str | tuple[tuple[int, int], ...]:
    """Pairs name layers that a two-layer teacher does not have: one that it has stands for them."""
    return settings.layer_map if isinstance(settings.layer_map, str) else ((0, 1),)


def _family(source: str, cards: Sequence[Path]) -> str:
    place = source_kind(source, "teachers", cards)
    if place == "card":
        return find_teacher(source, cards).family
    config = Path(source).expanduser() / "config.json"
    if place == "folder" and config.is_file():
        return str(json.loads(config.read_bytes()).get("model_type", FAMILY))
    return FAMILY


def _write_tiny(folder: Path, family: str, masked: bool = False) -> None:
    """Write a tiny model with a tokenizer of single characters; aside first, so that the folder is whole."""
    from compress.models.tiny import write_tiny_model

    aside = folder.with_name(f".{folder.name}.{os.getpid()}")
    write_tiny_model(aside, family, masked=masked)
    try:
        aside.rename(folder)
    except OSError:  # another process of this launch, or another smoke run, was faster
        shutil.rmtree(aside)
