"""Training: one loop, and the two steps that use it, from folders and from models in memory."""

from __future__ import annotations

from compress.train.core.train_state import Evaluation, TrainResult
from compress.train.distill import distill, distill_from_model
from compress.train.finetune import finetune, finetune_from_model
from compress.train.loop import train
from compress.train.save_trained import TrainedModel

__all__ = [
    "Evaluation",
    "TrainResult",
    "TrainedModel",
    "distill",
    "distill_from_model",
    "finetune",
    "finetune_from_model",
    "train",
]
