"""A student from its teacher: fewer layers, another shape, or a checkpoint of its own."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from compress.errors import ModelError
from compress.folder import TaskInfo
from compress.models.embedding import SentenceEmbedding, embedding_size, fit_embedding
from compress.models.families import UNEVEN, Family, base_of, family_of, head_size, layers_of
from compress.models.folder import load_model
from compress.models.heads import head_of
from compress.models.shapes import from_config
from compress.recipe.training import Student


@dataclass(frozen=True)
class Sizes:
    """The widths of an encoder, apart from its depth."""

    hidden: int
    heads: int
    ffn: int

    def __str__(self) -> str:
        """Read as ``hidden 384, 12 heads, FFN 1536``."""
        return f"hidden {self.hidden}, {self.heads} heads, FFN {self.ffn}"


LAYER_LISTS = ("layer_types", "layer_shapes")
"""Config entries that hold one value a layer, and follow when layers are chosen."""


def build_student(
    teacher: PreTrainedModel, student: Student, task: TaskInfo | None = None, *, seed: int = 0
) -> PreTrainedModel:
    """The student that a recipe describes, with the teacher's head and labels.

    With a source, its checkpoint is loaded (and its layers chosen, where a number is given too). Else the teacher's
    layers are copied, embeddings, pooler and head with them; a student of another width, or with `start: random`, is
    drawn from ``seed``. An embedding model gives embeddings as wide as the student's settings or the teacher's.
    """
    built = _built(teacher, student, task, seed)
    if isinstance(teacher, SentenceEmbedding):
        fit_embedding(built, student.embedding or embedding_size(teacher), seed)
    return built


def _built(teacher: PreTrainedModel, student: Student, task: TaskInfo | None, seed: int) -> PreTrainedModel:
    origin = teacher
    if student.source is not None:
        origin = load_model(place(student.source), task, student.revision, seed=seed)
        if student.layers is None:
            return origin
    family, config = family_of(origin), origin.config
    chosen = choose_layers(student.layers, int(config.num_hidden_layers))
    sizes, own = _sizes(family, config, student, head_size(origin)), _own_sizes(family, config)
    if sizes != own:
        _check_resize(family, config, student, sizes, own)
    fresh = _fresh(origin, _resized(family, config, sizes, chosen), seed)
    if sizes == own and student.start != "random":
        _copy_weights(origin, fresh, chosen)
    return fresh


def choose_layers(layers: float | tuple[int, ...] | None, depth: int) -> list[int]:
    """Which of ``depth`` layers to keep: a count or share takes them evenly spread and ends with the last one."""
    if layers is None:
        return list(range(depth))
    if isinstance(layers, tuple):
        return _listed(layers, depth)
    count = _count(layers, depth)
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


def place(source: str) -> Path | str:
    """A folder where there is one of this name, else what `fetch` makes of it."""
    folder = Path(source).expanduser()
    return folder if folder.is_dir() else source


def _own_sizes(family: Family, config: PreTrainedConfig) -> Sizes:
    return Sizes(int(config.hidden_size), int(config.num_attention_heads), int(getattr(config, family.ffn_key)))


def _sizes(family: Family, config: PreTrainedConfig, student: Student, head: int) -> Sizes:
    """The student's widths; those it does not give keep the teacher's head size and ratio of FFN to hidden."""
    own = _own_sizes(family, config)
    hidden = student.hidden or own.hidden
    if hidden == own.hidden:
        return Sizes(hidden, student.heads or own.heads, student.ffn or own.ffn)
    heads = student.heads or max(1, hidden // head)
    return Sizes(hidden, heads, student.ffn or round(own.ffn / own.hidden * hidden))


def _check_resize(family: Family, config: PreTrainedConfig, student: Student, sizes: Sizes, own: Sizes) -> None:
    """Refuse what cannot be had in other widths than the teacher's."""
    if student.start == "teacher":
        raise ModelError(
            f"the teacher's weights cannot start a student of {sizes}: the teacher has {own}.",
            hint="start: random, or name a checkpoint of this shape as the source",
        )
    if not family.resizable or config.model_type.startswith(UNEVEN):
        raise ModelError(
            f"a student of {sizes} cannot be made after this {family.name}: only its number of layers can be chosen.",
            hint="name a checkpoint as the source, or a teacher of another family",
        )
    if sizes.hidden % sizes.heads:
        raise ModelError(
            f"hidden {sizes.hidden} cannot be split evenly into {sizes.heads} heads.",
            hint="give a number of heads that divides it: hidden: 312, heads: 12",
        )


def _resized(family: Family, config: PreTrainedConfig, sizes: Sizes, chosen: list[int]) -> PreTrainedConfig:
    """A copy of the config with these widths and layers."""
    changed = copy.deepcopy(config)
    changed.hidden_size, changed.num_attention_heads = sizes.hidden, sizes.heads
    setattr(changed, family.ffn_key, sizes.ffn)
    for name in LAYER_LISTS:
        if (values := getattr(config, name, None)) is not None:
            setattr(changed, name, [values[index] for index in chosen])
    changed.num_hidden_layers = len(chosen)
    return changed


def _fresh(origin: PreTrainedModel, config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """A model of the same class with weights drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return from_config(head_of(origin).model_class(type(config)), config)


def _copy_weights(origin: PreTrainedModel, fresh: PreTrainedModel, chosen: list[int]) -> None:
    """Everything outside the layers, and the chosen layers in their new places."""
    inside = f"{family_of(origin).layers}."
    prefix = "" if base_of(origin) is origin else f"{origin.base_model_prefix}."
    outside = {name: value for name, value in origin.state_dict().items() if not name.startswith(prefix + inside)}
    fresh.load_state_dict(outside, strict=False)
    theirs = layers_of(origin)
    for layer, index in zip(layers_of(fresh), chosen, strict=True):
        # A ModernBERT's first layer has no norm before its attention: where another layer becomes the first, its norm
        # is lost.
        lacking = layer.load_state_dict(theirs[index].state_dict(), strict=False).missing_keys
        assert not lacking, lacking
