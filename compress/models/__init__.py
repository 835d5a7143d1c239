"""Models: families and their parts, uneven shapes, folders, students, hooks.

Importing this package registers the uneven shapes with transformers' Auto classes, so that a pruned folder loads with
``AutoModelForSequenceClassification.from_pretrained`` and ``pipeline``.
"""

from __future__ import annotations

from compress.models.load_save import load, load_model, load_tokenizer, save_model
from compress.models.nonuniform_models import register_auto_classes
from compress.models.student.build_student import build_student

__all__ = ["build_student", "load", "load_model", "load_tokenizer", "save_model"]

register_auto_classes()
