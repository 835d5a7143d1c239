"""The names a recipe may use, gathered from the tables of the packages that define them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from compress.measure.quality.robustness import PERTURBATIONS
from compress.prune.criteria import CRITERIA
from compress.prune.latency_table import LATENCY_VARIANTS
from compress.quantize import CHOICES
from compress.tasks import KINDS
from compress.tasks.presets import KIND_DEFAULTS, NAMED_TASKS
from compress.variants import ALL_FORMATS, EXPORTS, QUANTIZERS, VARIANTS

TRACKERS = ("tensorboard", "wandb", "mlflow", "comet_ml", "aim", "clearml", "dvclive", "swanlab", "trackio")
"""Experiment trackers that Accelerate supports; each needs its own library installed."""

NAMES: Mapping[str, Collection[str]] = {
    "task kinds": KINDS,
    "pruning criteria": CRITERIA,
    "latency variants": LATENCY_VARIANTS,
    "quantizers": (*CHOICES, *QUANTIZERS),
    "formats": (ALL_FORMATS, *EXPORTS),
    "variants": VARIANTS,
    "perturbations": PERTURBATIONS,
    "trackers": TRACKERS,
    "named tasks": NAMED_TASKS,
    "defaults of kinds": KIND_DEFAULTS,
}
