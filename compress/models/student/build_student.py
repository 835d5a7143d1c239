"""Builds a student from its teacher: fewer layers, narrower ones, another shape, or a checkpoint of its own."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from compress.model_folder.model_info import TaskInfo
from compress.model_shapes import Start, StudentShape, changes_shape, plan_student_shape, shape_of_config
from compress.models.embedding_model import (
    SentenceEmbedding,
    embedding_size,
    projection_of,
    set_embedding_size,
    set_projection,
)
from compress.models.encoder_parts import base_of, family_of
from compress.models.fetch import fetch
from compress.models.heads import head_of
from compress.models.last_layers_head import reads_last_layers
from compress.models.load_save import load_model, output_layer, read_config
from compress.models.nonuniform_models import (
    POOLED,
    from_config,
    reshape_config,
    with_head_features,
    with_head_pooling,
)
from compress.models.student.pca_projection import principal_directions
from compress.models.student.slicing import (
    Importance,
    copy_weights,
    select_dimensions,
    uniform_importance,
    weight_importance,
)
from compress.recipe.student_schema import Student


def build_student(
    teacher: PreTrainedModel,
    student: Student,
    task: TaskInfo | None = None,
    *,
    seed: int = 0,
    importance: Importance | None = None,
    piece_counts: Tensor | None = None,
) -> PreTrainedModel:
    """Return the student that a recipe describes, with the teacher's head and labels.

    A student with a `source` is made from that checkpoint in place of the teacher; without shape settings it is the
    checkpoint itself. A student of the teacher's widths gets copies of its layers. A narrower one gets the most
    important parts of layers, embeddings, pooler and head where the family can be sliced; any other is randomly
    initialised. `start` overrides this: `random` initialises everything, `slice` refuses what cannot be sliced, `svd`
    narrows the hidden size by principal directions.

    Args:
        teacher: the model whose head, labels and, without a source, weights are used.
        student: the recipe's settings.
        task: loads the source with a head for this task.
        seed: of random weights.
        importance: as measured on data by `train.distillation.activation_importance`; without it the magnitudes of
            weights are used. An embedding model gives embeddings as wide as the student's settings or the teacher's.
        piece_counts: how often each word piece occurs in train, which weights the errors of factorised word vectors.
    """
    origin = source_model(teacher, student, task, seed)
    built = (
        origin
        if student.source and not changes_shape(student)
        else _built(origin, student, seed, importance, piece_counts)
    )
    if isinstance(teacher, SentenceEmbedding):
        set_embedding_size(built, student.embedding or embedding_size(teacher), seed)
    return built


def source_model(
    teacher: PreTrainedModel, student: Student, task: TaskInfo | None = None, seed: int = 0
) -> PreTrainedModel:
    """Return the model that a student is made from: its own checkpoint where it names one, else the teacher.

    A teacher whose head reads several layers gives it the part for the last one; through a BiLSTM, which no part of the
    student replaces, nothing.
    """
    if student.source is None:
        return with_last_layer_head(teacher, seed) if reads_last_layers(teacher) else teacher
    return load_model(student.source, task, student.revision, seed=seed, pooling=student.pooling)


def with_last_layer_head(teacher: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    """Return a copy of a teacher whose head reads four layers, with one that reads the last layer alone."""
    pooling = "mean" if head_of(teacher) is POOLED else None
    config = with_head_pooling(with_head_features(teacher.config, None), pooling)
    fresh = _fresh_model(teacher, config, seed)
    base_of(fresh).load_state_dict(base_of(teacher).state_dict(), strict=False)  # poolers are not read
    ours, theirs = output_layer(fresh), output_layer(teacher)
    assert ours is not None
    assert theirs is not None
    if teacher.config.head_layers is None:
        with torch.no_grad():
            ours.weight.copy_(theirs.weight[:, -ours.in_features :])
            ours.bias.copy_(theirs.bias)
    nn.Module.to(fresh, teacher.device).train(teacher.training)
    return fresh


def initialization_of(teacher: PreTrainedConfig, student: Student) -> Start | None:
    """Return where the weights of a student come from; None where a checkpoint is used as it is."""
    if student.source is None:
        return student_shape_of(teacher, student).start
    if not changes_shape(student):
        return None
    return student_shape_of(read_config(fetch(student.source, student.revision)), student).start


def is_narrowed(config: PreTrainedConfig, student: Student) -> bool:
    """Return whether a student of a model with this config is sliced narrower, so that importance matters."""
    return student_shape_of(config, student).start in ("slice", "svd")


def student_shape_of(config: PreTrainedConfig, student: Student) -> StudentShape:
    """Return the shape of a student made from a model with this config."""
    return plan_student_shape(shape_of_config(config.to_dict()), student)


def _built(
    origin: PreTrainedModel, student: Student, seed: int, importance: Importance | None, counts: Tensor | None
) -> PreTrainedModel:
    shape = student_shape_of(origin.config, student)
    fresh = _fresh_model(origin, _student_config(origin.config, shape), seed)
    if shape.start == "random":
        return fresh
    if shape.start == "teacher":
        importance = uniform_importance(origin)
    importance = importance or weight_importance(origin)
    hidden = (principal_directions if shape.start == "svd" else select_dimensions)(importance, shape.hidden)
    copy_weights(origin, fresh, shape.layers, importance, hidden, counts)
    if isinstance(fresh, SentenceEmbedding) and projection_of(fresh) is None and shape.hidden < hidden.hidden:
        set_projection(fresh, hidden.matrix)  # back into the teacher's space
    return fresh


def _student_config(config: PreTrainedConfig, shape: StudentShape) -> PreTrainedConfig:
    """Return the teacher's config with the student's shape."""
    family = family_of(config)
    changed = reshape_config(config, shape.hidden, shape.layer_shapes, shape.head_size, shape.factors)
    if family.projection_if_narrower and config.embedding_size == config.hidden_size:
        changed.embedding_size = shape.hidden  # word vectors are the hidden states: there is no projection
    if (kinds := getattr(config, "layer_types", None)) is not None:
        changed.layer_types = [kinds[index] for index in shape.layers]
    return changed


def _fresh_model(origin: PreTrainedModel, config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """Return a model with the origin's head and weights drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would change the generators of GPUs for good
        return from_config(head_of(origin).model_class(type(config)), config)
