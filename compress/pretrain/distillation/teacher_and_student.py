"""The models of a general distillation: a teacher, and a student made from its layers, of a shape, or a checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedModel

from compress.errors import ModelError, UsageError
from compress.models.encoder_parts import base_of
from compress.models.load_save import load_tokenizer, read_config
from compress.models.nonuniform_models import from_config
from compress.models.read_checkpoint import check_finite, missing_head_weights, read_checkpoint
from compress.models.student.build_student import build_student
from compress.pretrain.method import Setting
from compress.recipe.pretrain_schema import EncoderShape
from compress.recipe.student_schema import Student
from compress.train.distillation.teachers import STUDENT_HINT, check_same_vocabulary

TEACHERS_OWN = ("positions", "dropout")
"""What a student has of its teacher, whatever its shape."""


def load_teacher(folder: Path) -> PreTrainedModel:
    """Return an encoder without a head."""
    read_config(folder)
    model, report = read_checkpoint(AutoModel, folder)
    missing_head_weights(model, report, folder)
    check_finite(model, folder)
    model.train(False)
    return model


def load_word_teacher(folder: Path, name: str) -> PreTrainedModel:
    """Return an encoder with its word head, whose outputs are soft labels; refuse one without.

    ``name`` is that of the recipe.
    """
    read_config(folder)
    model, report = read_checkpoint(AutoModelForMaskedLM, folder)
    if missing_head_weights(model, report, folder):
        raise ModelError(
            f"distill.method: triple needs a teacher with a masked-LM head, and {name} was saved without one: it has no"
            " soft labels for masked pieces.",
            hint="method: relations, which works with any encoder, or a teacher with its head, as bert-base-uncased",
        )
    check_finite(model, folder)
    model.train(False)
    return model


def new_student(encoder: PreTrainedModel, shape: EncoderShape, seed: int) -> PreTrainedModel:
    """Return an encoder of a shape, made from the teacher's evenly spread layers.

    A narrower one has the most important parts of these layers, by the magnitude of weights.
    """
    given = [key for key in TEACHERS_OWN if key in shape.model_fields_set]
    if given:
        raise UsageError(f"shape.{given[0]}: a student that is distilled has its teacher's {given[0]}: leave it out.")
    sizes = {key: value for key, value in shape if key not in TEACHERS_OWN and value is not None}
    return build_student(encoder, Student(**{**sizes, "layers": float(shape.layers)}), seed=seed)


def start_of_student(setting: Setting, encoder: PreTrainedModel) -> PreTrainedModel:
    """Return what a student without a word head starts as: its checkpoint, or made from the teacher's encoder."""
    if setting.start is not None:
        return load_teacher(setting.start)
    assert setting.recipe.shape is not None
    return new_student(encoder, setting.recipe.shape, setting.recipe.seed)


def with_word_head(encoder: PreTrainedModel, teacher: PreTrainedModel, seed: int) -> PreTrainedModel:
    """Return a student with a word head: the teacher's where their widths agree, else random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = from_config(type(teacher), encoder.config)
    base_of(model).load_state_dict(encoder.state_dict(), strict=False)  # which has a pooler that this one lacks
    own, known = model.state_dict(), set(base_of(teacher).state_dict())
    prefix = f"{teacher.base_model_prefix}."
    head = {
        name: value
        for name, value in teacher.state_dict().items()
        if name.removeprefix(prefix) not in known and name in own and own[name].shape == value.shape
    }
    model.load_state_dict(head, strict=False)
    model.train(False)
    return model


def check_student_tokenizer(student: Path, teacher: Path) -> None:
    """Refuse a student's checkpoint with another vocabulary than its teacher's: both read the same pieces."""
    check_same_vocabulary(f"the student {student}", load_tokenizer(student), load_tokenizer(teacher), STUDENT_HINT)
