"""General distillation as a method of pretraining: `distill: {teacher: minilm-l6, method: relations}`.

Its models are a teacher, and a student made from its layers, of a shape, or a checkpoint.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedModel

from compress.errors import ModelError
from compress.models.encoder_parts import base_of
from compress.models.fetch import fetch
from compress.models.load_save import load_tokenizer, read_config
from compress.models.nonuniform_models import from_config
from compress.models.read_checkpoint import check_finite, missing_head_weights, read_checkpoint
from compress.models.student.build_student import build_student
from compress.pretrain.encoder_limits import check_length
from compress.pretrain.encoders import Method, Setting, load_encoder
from compress.pretrain.methods.bert_pretraining import MaskedLMObjective
from compress.pretrain.methods.relations import RelationsObjective
from compress.pretrain.methods.triple import TripleObjective
from compress.pretrain.pretrain_schema import TEACHERS_OWN, EncoderShape
from compress.pretrain.scores.held_out import make_evaluator, make_loss_evaluator
from compress.recipe.student_schema import Student
from compress.train.distillation.teachers import STUDENT_HINT, check_same_vocabulary


def general_distillation(setting: Setting) -> Method:
    """Train a student on a teacher's outputs or relations."""
    section = setting.recipe.distill
    assert section is not None
    teacher = fetch(section.teacher.source, section.teacher.revision, setting.cards)
    if setting.start is not None:
        check_student_tokenizer(setting.start, teacher)
    method = METHODS[section.method](setting, teacher)
    check_length(method.model.config.to_dict(), setting.recipe.train.length, "student")
    return method


def _triple(setting: Setting, folder: Path) -> Method:
    """DistilBERT's loss; the weights that predict held-out words best are the result."""
    recipe, mask = setting.recipe, setting.data.special.mask
    assert recipe.distill is not None
    teacher, temperature = load_word_teacher(folder, recipe.distill.teacher.source), recipe.distill.temperature
    if setting.start is not None:
        model = load_encoder(setting.start, pairs=False, seed=recipe.seed, console=setting.console)
    else:
        assert recipe.shape is not None
        encoder = load_teacher(folder)
        model = with_word_head(new_student(encoder, recipe.shape, recipe.seed), teacher, recipe.seed)

    def objective(first: int) -> TripleObjective:
        return TripleObjective(teacher, temperature, MaskedLMObjective(recipe.masked_lm, mask, recipe.seed, first))

    select = setting.data.examples(model, "select", recipe.train.length)
    return Method(model, objective, make_evaluator(select, recipe.masked_lm, mask))


def _relations(setting: Setting, folder: Path) -> Method:
    """MiniLM's loss, also on held-out texts, where the weights with the lowest are the result."""
    teacher = load_teacher(folder)
    model = start_of_student(setting, teacher)
    objective = RelationsObjective(teacher)
    select = setting.data.examples(model, "select", setting.recipe.train.length)
    return Method(model, lambda first: objective, make_loss_evaluator(select, objective))


METHODS: Mapping[str, Callable[[Setting, Path], Method]] = {"triple": _triple, "relations": _relations}
"""By `distill.method`."""


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
