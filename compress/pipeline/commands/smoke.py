"""`--smoke`: every step of a recipe with a two-layer random model and a few rows, to check in a minute that it runs.

Its results mean nothing and are stored separately.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compress.pipeline.torchrun_launch import Launch
from compress.recipe.measure_schema import Measure, TimingGrid
from compress.recipe.schema import Publish, Recipe
from compress.recipe.training_schema import Training
from compress.steps import STEPS as MODEL_STEPS
from compress.steps.distillations import tiny_model
from compress.steps.model_configs import config_of
from compress.steps.model_step import Smoke

SMOKE_FOLDER = ".smoke"
"""The folder of smoke runs, below that of all runs."""
ROWS = 96
"""Rows of each role."""
LABELLED = 48
"""Rows of train with labels, where the recipe uses those of some only."""
STEPS, BATCH = 2, 8
"""Optimizer steps of each training, and rows of each batch."""
DEFAULT_FAMILY = "bert"
"""Used where the teacher's family is known only to the hub."""


def smoke_recipe(recipe: Recipe, root: Path, cards: Sequence[Path]) -> Recipe:
    """Return the same recipe, small in everything that takes time."""
    config = config_of(recipe.teacher.source, recipe.teacher.revision, cards)
    family = str(config.get("model_type", DEFAULT_FAMILY))
    teacher = tiny_model(root / f"teacher-{family}", family)
    labelled = recipe.task.data.labelled and min(LABELLED, recipe.task.data.labelled)
    data = recipe.task.data.model_copy(update={"limit": ROWS, "labelled": labelled})
    changes: dict[str, Any] = {
        "task": recipe.task.model_copy(update={"data": data}),
        "teacher": recipe.teacher.model_copy(update={"source": str(teacher), "revision": None}),
        "measure": _measure(recipe.measure),
        "publish": recipe.publish and Publish(to=str(root / "zoo"), name=recipe.publish.name),
    }
    small, smoke = recipe.model_copy(update=changes), Smoke(root, _two_updates)
    for step in MODEL_STEPS.values():
        small = step.shrink(small, smoke)
    return small


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


def _two_updates(settings: Training) -> Training:
    """The first training of several, with two updates."""
    batch = max(BATCH, 2 * Launch.from_environment().world)  # some losses need two texts in each process
    changes = {"max_steps": STEPS, "batch_size": batch, "evaluations": 1, "precision": "fp32", "freeze": None}
    return settings.single().model_copy(update=changes)
