"""Models: parts of encoders, non-uniform shapes, model folders, students, forward hooks.

Importing this package registers the non-uniform shapes, and models without attention, with transformers' Auto classes,
so that a pruned folder loads with ``AutoModelForSequenceClassification.from_pretrained`` and ``pipeline``.
"""

import os

# Read when torch computes its first product. oneDNN compiles each shape of a product in bf16 and keeps 1,024 of them; a
# model whose layers differ needs more than that in an epoch, and compiled them again in each.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096")

from compress.models.light_models import register_light_models
from compress.models.load_save import load, load_model, load_tokenizer, save_model
from compress.models.nonuniform_models import register_auto_classes
from compress.models.student.build_student import build_student

__all__ = ["build_student", "load", "load_model", "load_tokenizer", "save_model"]

register_auto_classes()
register_light_models()
