"""A student from its teacher: fewer layers, narrower ones, another shape, or a checkpoint of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from compress.errors import ModelError
from compress.families import Family
from compress.model_info import TaskInfo
from compress.models.embedding_model import (
    SentenceEmbedding,
    embedding_size,
    projection_of,
    set_embedding_size,
    set_projection,
)
from compress.models.encoder_parts import family_of, head_size
from compress.models.fetch import fetch
from compress.models.heads import head_of
from compress.models.load_save import load_model, read_config
from compress.models.nonuniform_models import config_layer_shapes, from_config, reshape_config
from compress.models.student.factorised_embeddings import check_factors
from compress.models.student.pca_projection import principal_directions
from compress.models.student.slicing import (
    Importance,
    copy_weights,
    select_dimensions,
    uniform_importance,
    weight_importance,
)
from compress.recipe.training_schema import Student

Start = Literal["teacher", "slice", "svd", "random"]
Choose = Literal["spread", "first", "last", "ends"]

SHAPE_KEYS = ("layers", "hidden", "heads", "ffn", "factors")
"""The keys of a student that make a checkpoint into something else."""


@dataclass(frozen=True)
class Widths:
    """The widths of an encoder, apart from its depth."""

    hidden: int
    heads: int
    ffn: int

    def __str__(self) -> str:
        """Read as ``hidden 384, 12 heads, FFN 1536``."""
        return f"hidden {self.hidden}, {self.heads} heads, FFN {self.ffn}"


@dataclass(frozen=True)
class StudentShape:
    """What a student will be, as its teacher's config and the recipe decide it."""

    start: Start
    chosen: list[int]
    """The teacher's layers in the student's order."""
    hidden: int
    shapes: list[tuple[int, int]]
    """(heads, FFN width) of each layer."""
    head_size: int
    factors: int | None


def build_student(
    teacher: PreTrainedModel,
    student: Student,
    task: TaskInfo | None = None,
    *,
    seed: int = 0,
    importance: Importance | None = None,
) -> PreTrainedModel:
    """The student that a recipe describes, with the teacher's head and labels.

    With a source, its checkpoint stands for the teacher in what follows, and is the student where no shape is given.
    A student of the teacher's widths gets copies of its layers; a narrower one their most important parts where its
    family can, embeddings, pooler and head with them; any other is drawn from ``seed``. `start` may say otherwise:
    `random` draws all, `slice` refuses what cannot be cut, `svd` narrows the hidden size by principal directions.

    ``importance`` is what `train.importance` measured on the model that is cut; without it the sizes of weights stand
    in for it. An embedding model gives embeddings as wide as the student's settings or the teacher's.
    """
    origin = source_model(teacher, student, task, seed)
    built = origin if student.source and not changes_shape(student) else _built(origin, student, seed, importance)
    if isinstance(teacher, SentenceEmbedding):
        set_embedding_size(built, student.embedding or embedding_size(teacher), seed)
    return built


def source_model(
    teacher: PreTrainedModel, student: Student, task: TaskInfo | None = None, seed: int = 0
) -> PreTrainedModel:
    """The model that a student is made of: its own checkpoint where it names one, else the teacher."""
    if student.source is None:
        return teacher
    return load_model(resolve_source(student.source), task, student.revision, seed=seed)


def initialization_of(teacher: PreTrainedConfig, student: Student) -> Start | None:
    """Where the weights of a student come from; None where a checkpoint is taken as it is."""
    if student.source is None:
        return plan_student_shape(teacher, student).start
    if not changes_shape(student):
        return None
    return plan_student_shape(read_config(fetch(student.source, student.revision)), student).start


def is_narrowed(config: PreTrainedConfig, student: Student) -> bool:
    """Whether a student is cut narrower out of a model with this config, for which importance counts."""
    return plan_student_shape(config, student).start in ("slice", "svd")


def changes_shape(student: Student) -> bool:
    """Whether more is asked than a checkpoint as it is."""
    return student.start is not None or any(getattr(student, key) is not None for key in SHAPE_KEYS)


def _built(origin: PreTrainedModel, student: Student, seed: int, importance: Importance | None) -> PreTrainedModel:
    form = plan_student_shape(origin.config, student)
    fresh = _fresh(origin, _config(origin.config, form), seed)
    if form.start == "random":
        return fresh
    if form.start == "teacher":
        importance = uniform_importance(origin)
    importance = importance or weight_importance(origin)
    stream = (principal_directions if form.start == "svd" else select_dimensions)(importance, form.hidden)
    copy_weights(origin, fresh, form.chosen, importance, stream)
    if isinstance(fresh, SentenceEmbedding) and projection_of(fresh) is None and form.hidden < stream.hidden:
        set_projection(fresh, stream.matrix)  # back into the teacher's space
    return fresh


def plan_student_shape(config: PreTrainedConfig, student: Student) -> StudentShape:
    """What a student of a model with this config will be; whatever cannot be is refused here."""
    family, told = family_of(config), config_layer_shapes(config)
    chosen = choose_layers(student.layers, len(told), student.choose)
    own = Widths(int(config.hidden_size), max(heads for heads, _ in told), max(ffn for _, ffn in told))
    size = head_size(config)
    sizes = _sizes(student, own, size)
    start = _start(family, config, student, sizes, own)
    shapes = [(min(sizes.heads, told[index][0]), min(sizes.ffn, told[index][1])) for index in chosen]
    if start == "random" and sizes != own:
        shapes, size = [(sizes.heads, sizes.ffn)] * len(chosen), sizes.hidden // sizes.heads
    if student.factors is not None:
        check_factors(family, config, student.factors, sizes.hidden)
    return StudentShape(start, chosen, sizes.hidden, shapes, size, student.factors or getattr(config, "factors", None))


def choose_layers(layers: float | tuple[int, ...] | None, depth: int, choose: Choose = "spread") -> list[int]:
    """Which of ``depth`` layers to keep: those listed, or a number or share of them taken by a rule.

    Of twelve layers three are, by rule: 3, 7, 11 (`spread`, which ends with the last one), 0, 1, 2 (`first`), 9, 10, 11
    (`last`), 0, 6, 11 (`ends`, spread from the first to the last).
    """
    if layers is None:
        return list(range(depth))
    if isinstance(layers, tuple):
        return _listed(layers, depth)
    count = _count(layers, depth)
    if choose == "first":
        return list(range(count))
    if choose == "last":
        return list(range(depth - count, depth))
    if choose == "ends" and count > 1:
        return [(2 * index * (depth - 1) + count - 1) // (2 * (count - 1)) for index in range(count)]
    return [math.ceil((index + 1) * depth / count) - 1 for index in range(count)]


def _listed(layers: tuple[int, ...], depth: int) -> list[int]:
    outside = [index for index in layers if not 0 <= index < depth]
    if outside or not layers or len(set(layers)) != len(layers):
        raise ModelError(f"layers: {list(layers)} should name different layers between 0 and {depth - 1}.")
    return list(layers)


def _count(layers: float, depth: int) -> int:
    if layers <= 0 or (layers >= 1 and layers != int(layers)):
        raise ModelError(f"layers: {layers:g} is neither a number of layers nor a share between 0 and 1.")
    count = max(1, round(layers * depth)) if layers < 1 else int(layers)
    if count > depth:
        raise ModelError(f"a student of {count} layers cannot be taken from {depth} layers; ask for {depth} at most.")
    return count


def resolve_source(source: str) -> Path | str:
    """A folder where there is one of this name, else what `fetch` makes of it."""
    folder = Path(source).expanduser()
    return folder if folder.is_dir() else source


def _sizes(student: Student, own: Widths, head: int) -> Widths:
    """The student's widths; those it does not give keep the teacher's head size and ratio of FFN to hidden."""
    hidden = student.hidden or own.hidden
    if hidden == own.hidden:
        return Widths(hidden, student.heads or own.heads, student.ffn or own.ffn)
    most = own.heads if hidden < own.hidden else hidden  # a pruned teacher may have fewer heads than would fit
    heads = student.heads or min(most, max(1, hidden // head))
    return Widths(hidden, heads, student.ffn or round(own.ffn / own.hidden * hidden))


def _start(family: Family, config: PreTrainedConfig, student: Student, sizes: Widths, own: Widths) -> Start:
    """Where the weights come from: as the student says, or the best that its widths allow."""
    if sizes == own:
        return "random" if student.start == "random" else "teacher"
    if student.start == "teacher":
        raise ModelError(
            f"the teacher's weights cannot start a student of {sizes}: the teacher has {own}.",
            hint="start: slice takes the most important part of them; or name a checkpoint of this shape as the source",
        )
    if not family.resizable:
        raise ModelError(
            f"a student of {sizes} cannot be made after this {family.name}: only its number of layers can be chosen.",
            hint="name a checkpoint as the source, or a teacher of another family",
        )
    refusal = _no_slices(family, config, sizes, own)
    if student.start in ("slice", "svd") and refusal:
        raise refusal
    start = student.start or ("random" if refusal else "slice")
    if start == "random" and sizes.hidden % sizes.heads:
        raise ModelError(
            f"hidden {sizes.hidden} cannot be split evenly into {sizes.heads} heads.",
            hint="give a number of heads that divides it: hidden: 312, heads: 12",
        )
    return start


def _no_slices(family: Family, config: PreTrainedConfig, sizes: Widths, own: Widths) -> ModelError | None:
    """Why a student of these widths cannot be cut out of a model with this config, where it cannot."""
    size = head_size(config)
    if sizes.hidden > own.hidden or sizes.heads > own.heads or sizes.ffn > own.ffn:
        return ModelError(
            f"a student of {sizes} cannot be cut out of a teacher of {own}: it would be wider.",
            hint="start: random, or smaller widths",
        )
    if not family.prunable and sizes.heads * size != sizes.hidden:
        return ModelError(
            f"a student of {sizes} cannot be cut out of this {family.name}: its heads of {size} must make up the"
            " hidden size.",
            hint=f"hidden: {size * sizes.heads} goes with {sizes.heads} heads; or start: random",
        )
    between = getattr(config, "embedding_size", None)
    if family.name == "electra" and between != own.hidden and between == sizes.hidden:
        return ModelError(
            f"a student of {sizes} cannot be cut out of this electra: its word vectors have {between} dimensions too,"
            " so it would lack the projection that stands between them and the hidden states.",
            hint="another hidden size, or start: random",
        )
    return None


def _config(config: PreTrainedConfig, form: StudentShape) -> PreTrainedConfig:
    """The teacher's config in the student's form."""
    made = reshape_config(config, form.hidden, form.shapes, form.head_size, form.factors)
    if getattr(config, "embedding_size", None) == config.hidden_size and family_of(config).name == "electra":
        made.embedding_size = form.hidden  # word vectors are hidden states here, as nothing stands between them
    if (kinds := getattr(config, "layer_types", None)) is not None:
        made.layer_types = [kinds[index] for index in form.chosen]
    return made


def _fresh(origin: PreTrainedModel, config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """A model of the same head with weights drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would set those of GPUs for good
        return from_config(head_of(origin).model_class(type(config)), config)
