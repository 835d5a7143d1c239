"""General distillation as a method of pretraining: `distill: {teacher: minilm-l6, method: relations}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from compress.models.fetch import fetch
from compress.pretrain.distillation.relations import RelationsObjective
from compress.pretrain.distillation.teacher_and_student import (
    check_student_tokenizer,
    load_teacher,
    load_word_teacher,
    new_student,
    start_of_student,
    with_word_head,
)
from compress.pretrain.distillation.triple import TripleObjective
from compress.pretrain.encoders import check_positions, load_encoder
from compress.pretrain.method import Method, Setting
from compress.pretrain.methods.bert_pretraining import MaskedLMObjective
from compress.pretrain.scores.held_out import make_evaluator, make_loss_evaluator


def general_distillation(setting: Setting) -> Method:
    """Train a student on a teacher's outputs or relations."""
    section = setting.recipe.distill
    assert section is not None
    teacher = fetch(section.teacher.source, section.teacher.revision, setting.cards)
    if setting.start is not None:
        check_student_tokenizer(setting.start, teacher)
    method = METHODS[section.method](setting, teacher)
    check_positions(method.model.config, setting.recipe.train.length, "student")
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
