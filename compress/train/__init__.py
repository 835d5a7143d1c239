"""Training: one loop, and the two steps that use it, from folders and from models in memory."""

from __future__ import annotations

from compress.train.distill import distill, distill_from_model
from compress.train.finetune import finetune, finetune_from_model
from compress.train.loop import train
from compress.train.made import Made
from compress.train.record import Evaluation, TrainResult

__all__ = [
    "Evaluation",
    "Made",
    "TrainResult",
    "distill",
    "distill_from_model",
    "finetune",
    "finetune_from_model",
    "train",
]
