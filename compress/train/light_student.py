"""A student without attention: its pieces, its config, and its training on the teacher's outputs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.data.splits.unlabelled_texts import UNLABELLED
from compress.data.tokenizer_subset import rule_text
from compress.errors import ModelError
from compress.model_folder.model_history import VocabularyInfo
from compress.model_folder.model_info import TaskInfo
from compress.models.checkpoint_task import config_for
from compress.models.embedding_model import SentenceEmbedding, embedding_size
from compress.models.encoder_parts import base_of, shape_of
from compress.models.heads import EMBEDDING, HEADS, head_for
from compress.models.light_models import LIGHT_CONFIGS
from compress.models.load_save import load_model, load_tokenizer
from compress.models.nonuniform_models import from_config
from compress.recipe.distill_schema import LightDistill
from compress.recipe.student_schema import LightStudent
from compress.tasks.base import Row
from compress.train.core import training_data
from compress.train.core.seed_restarts import TrainContext
from compress.train.distill import DistillData, train_student
from compress.train.distillation.embedding_projection import reduce_embedding_width
from compress.train.distillation.light_start import stored_start
from compress.train.distillation.teachers import STUDENT_HINT, further_teachers, ids_in_teacher
from compress.train.piece_choice import PieceChoice, choose_pieces
from compress.train.save_trained import TrainedModel, save_trained_model


def distill_light(
    teacher: Path,
    student: LightStudent,
    data: Path,
    settings: LightDistill,
    seed: int,
    work: Path,
    *,
    step: str = "static",
    console: Console | None = None,
    track: str | None = None,
    unlabelled_rows: Sequence[Row] = (),
) -> TrainedModel:
    """Write the model folder of a student without attention, which learns a teacher's outputs, to ``work``."""
    context = TrainContext(step, seed, work, console or Console("quiet"), track)
    roles, tokenizer = load_prepared(data), load_tokenizer(teacher)
    rows = DistillData(roles.rows("train"), roles.rows("select"), roles.documents("select"), unlabelled_rows)
    task = roles.info.task_info
    model = load_model(teacher, task)
    tokens = training_data.fast_tokenizer(model.config, tokenizer)
    if isinstance(model, SentenceEmbedding):
        width = student.embedding or embedding_size(model)
        model = reduce_embedding_width(model, width, rows.train, task, tokens)
    held = {"select": roles.rows("select"), "test": roles.rows("test")}
    corpus: dict[str, Sequence[Row]] = {"train": rows.train, UNLABELLED: unlabelled_rows}
    choice = choose_pieces(tokenizer, tokens, tokenizer.all_special_ids, corpus, task, student.vocabulary, held=held)
    config = light_config(student, model, choice, task)
    vectors = stored_start(student, config, model, tokenizer, choice, rows.train, task, context)

    def build(seed: int) -> PreTrainedModel:
        return build_light(config, task, vectors, seed)

    own = training_data.fast_tokenizer(config, choice.tokenizer)
    teachers = [(model, 1.0), *further_teachers(settings, model, task, tokenizer)]
    teacher_ids = ids_in_teacher("the student", choice.tokenizer, tokenizer, STUDENT_HINT)
    trained, result, _, augmented = train_student(
        build, teachers, rows, settings, task, own, context, start_competes=False, teacher_ids=teacher_ids
    )
    context.console.note(f"{step}: {shape_of(trained).text} from a teacher of {shape_of(model).text}")
    vocabulary = None
    if student.vocabulary is not None:
        vocabulary = VocabularyInfo(
            rule=rule_text(student.vocabulary),
            pieces_before=choice.before,
            pieces=len(choice.kept),
            changed=choice.changed,
        )
    return save_trained_model(
        trained, choice.tokenizer, work, step, data, result, augmented=augmented, vocabulary=vocabulary
    )


def light_config(
    student: LightStudent, teacher: PreTrainedModel, choice: PieceChoice, task: TaskInfo
) -> PreTrainedConfig:
    """Return the config of a student with the kept pieces and a head for the task."""
    tokenizer = choice.tokenizer
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    special = sorted({index for index in (first, last, tokenizer.pad_token_id) if index is not None})
    tokens = {"special_token_ids": special, "sep_token_id": last, "pad_token_id": tokenizer.pad_token_id}
    width = embedding_size(teacher) if isinstance(teacher, SentenceEmbedding) else None
    if reads_pairs(task) and last is None:
        raise ModelError(f"the tokenizer of {teacher.name_or_path} has no separator, which divides two texts.")
    return config_for(_config(student, task, len(choice.kept), width, **tokens), task)


def untrained_config(student: LightStudent, task: TaskInfo, vocabulary: int) -> PreTrainedConfig:
    """Return the config of a student that has pieces of no tokenizer, to be timed."""
    width = (student.embedding or student.hidden) if head_for(task) is EMBEDDING else None
    tokens = {"special_token_ids": [0, 1, 2], "sep_token_id": 2, "pad_token_id": 0}
    return config_for(_config(student, task, vocabulary, width, **tokens), task)


def _config(
    student: LightStudent, task: TaskInfo, vocabulary: int, embedding: int | None, **tokens: Any
) -> PreTrainedConfig:
    shape: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": student.hidden,
        "factors": student.factors,
        "num_hidden_layers": student.depth,
        "ngrams": student.ngrams,
        "buckets": student.buckets,
        "head_width": student.head_width,
        "pairs": reads_pairs(task),
        **tokens,
    }
    config = LIGHT_CONFIGS[student.kind](**shape)
    if embedding is not None:
        config.update({"pooling": "mean", "sentence_size": embedding})
    return config


def reads_pairs(task: TaskInfo) -> bool:
    """Return whether a model of the task reads two texts at once."""
    return head_for(task) is HEADS["sequence-classification"] and len(task.text) > 1


def build_light(config: PreTrainedConfig, task: TaskInfo, start: Mapping[str, Tensor], seed: int) -> PreTrainedModel:
    """Return an untrained student whose vectors are ``start``, by name; the rest is drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = from_config(head_for(task).model_class(type(config)), config, "eager")
    base_of(model).get_submodule("embeddings").load_state_dict(dict(start), strict=False)
    return model
