"""Shapes of models from configs and settings alone: of a checkpoint, of the student a recipe describes, after pruning.

The student's shape is computed here for estimates, for checks before the run and for building it. torch is not loaded.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from compress.errors import CompressError, ModelError, first_error, pluralize
from compress.families import Family, family_named
from compress.model_folder.model_info import INFO_FILE, ShapeInfo, read_info
from compress.recipe.prune_schema import Prune
from compress.recipe.student_schema import LightStudent, Part, Student

Start = Literal["teacher", "slice", "svd", "random"]
LayerChoice = Literal["spread", "first", "last", "ends"]

SHAPE_KEYS = ("layers", "hidden", "heads", "ffn", "factors")
"""The keys of a student that change a checkpoint's shape."""


class Widths(NamedTuple):
    """The widths of an encoder, apart from its depth."""

    hidden: int
    heads: int
    ffn: int

    def __str__(self) -> str:
        """Return text such as ``hidden 384, 12 heads, FFN 1536``."""
        return f"hidden {self.hidden}, {self.heads} heads, FFN {self.ffn}"


@dataclass(frozen=True)
class StudentShape:
    """The shape of a student and where its weights come from."""

    start: Start
    layers: list[int]
    """The origin's layers in the student's order."""
    hidden: int
    layer_shapes: list[tuple[int, int]]
    """(heads, FFN width) of each layer."""
    head_size: int
    factors: int | None
    """Rank of factorised word vectors; None for a plain table."""


def shape_of_folder(folder: Path | None) -> ShapeInfo | None:
    """Return the shape in a model folder's compress.json, else in its config.json; None where neither gives it."""
    if folder is None:
        return None
    try:
        shape = read_info(folder).shape if (folder / INFO_FILE).is_file() else None
        return shape or shape_of_config(json.loads((folder / "config.json").read_bytes()))
    except (OSError, ValueError, CompressError):
        return None


def shape_of_config(config: Mapping[str, Any]) -> ShapeInfo:
    """Return the shape that a config.json describes, with an estimate of its parameters.

    Raises:
        ModelError: the family is not supported, or a size is missing or not a number.
    """
    family = family_named(str(config.get("model_type")))
    if not family.has_attention:
        return light_shape(_light_student(family.name, config), int(config.get("vocab_size", 0)))
    try:
        hidden, vocabulary = int(config[family.hidden_key]), int(config["vocab_size"])
        heads, ffn = int(config[family.heads_key]), int(config[family.ffn_key])
        layers = [(heads, ffn)] * int(config[family.layers_key])
        if config.get("layer_shapes"):
            layers = [(int(layer["heads"]), int(layer["ffn"])) for layer in config["layer_shapes"]]
        size = int(config.get("head_size") or int(config.get(family.attention_width_key, hidden)) // heads)
        own = config.get("embedding_size") if family.own_embedding_size else None
        embedding = int(config.get("factors") or own or hidden)
        positions = int(config.get("max_position_embeddings") or 0)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ModelError(f"the config of this {family.name} does not give its shape: {error!r}.") from error
    return _with_parameters(
        ShapeInfo(
            family=family.name,
            hidden=hidden,
            heads=tuple(heads for heads, _ in layers),
            ffn=tuple(ffn for _, ffn in layers),
            vocabulary=vocabulary,
            parameters=0,
            embedding_parameters=(vocabulary + positions) * embedding,
            head_size=size,
            embedding_size=embedding if embedding != hidden else None,
        )
    )


def _light_student(kind: str, config: Mapping[str, Any]) -> LightStudent:
    """Return the settings of a model without attention that its config describes."""
    names = {"hidden": "hidden_size", "factors": "factors", "ngrams": "ngrams", "head_width": "head_width"}
    names |= {"buckets": "buckets"} if config.get("ngrams") != 1 else {}
    given = {name: config.get(key) for name, key in names.items()}
    depth = {"convolutions": config.get("num_hidden_layers")} if kind == "conv" else {}
    try:
        return LightStudent.model_validate({"kind": kind, **given, **depth})
    except ValidationError as error:
        raise ModelError(f"the config of this {kind} model does not give its shape: {first_error(error)}") from error


def light_shape(student: LightStudent, vocabulary: int) -> ShapeInfo:
    """Return the shape of a student without attention, with an estimate of its parameters."""
    width, hidden = student.factors or student.hidden, student.hidden
    buckets = student.buckets if student.ngrams > 1 else 0
    tables = vocabulary * (width + 1) + buckets * (width + 2) + (width * hidden if student.factors else 0)
    layers = student.depth * (hidden * hidden + 5 * hidden)
    return ShapeInfo(
        family=student.kind,
        hidden=hidden,
        heads=(),
        ffn=(),
        vocabulary=vocabulary,
        parameters=tables + layers + 2 * hidden * student.head_width,
        embedding_parameters=tables,
        embedding_size=student.factors,
    )


def student_shape(origin: ShapeInfo, student: Student) -> ShapeInfo:
    """Return the shape of the student made from ``origin``, with an estimate of its parameters.

    Args:
        origin: the shape of the student's own checkpoint where the recipe names one, else of its teacher.
        student: the recipe's settings.
    """
    if student.source is not None and not changes_shape(student):
        return origin
    shape = plan_student_shape(origin, student)
    own = origin.embedding_size if family_named(origin.family).own_embedding_size else None
    embedding = shape.factors or own or shape.hidden
    changes = {
        "hidden": shape.hidden,
        "heads": tuple(heads for heads, _ in shape.layer_shapes),
        "ffn": tuple(ffn for _, ffn in shape.layer_shapes),
        "head_size": shape.head_size,
        "embedding_parameters": _embedding_parameters(origin, embedding, shape.hidden),
        "embedding_size": embedding if embedding != shape.hidden else None,
    }
    return _with_parameters(origin.model_copy(update=changes))


def part_shape(shared: ShapeInfo, part: Part) -> ShapeInfo:
    """Return the shape of a part of the shared student, with as many pieces.

    Raises:
        ModelError: it has more layers, heads or neurons, or its word vectors cannot be stored in factors.
    """
    largest = (len(shared.heads), min(shared.heads, default=0), min(shared.ffn, default=0))
    if any(asked > given for asked, given in zip(part.units, largest, strict=True)):
        raise ModelError(
            f"a part of {pluralize(part.layers, 'layer')}, {pluralize(part.heads, 'head')} and"
            f" {pluralize(part.ffn, 'neuron')} is larger than the shared"
            f" student, which has {largest[0]} layers of {largest[1]} heads and {largest[2]} neurons."
        )
    changes: dict[str, Any] = {"heads": (part.heads,) * part.layers, "ffn": (part.ffn,) * part.layers}
    if part.factors is not None:
        _check_factors(shared, part.factors, shared.embedding_size or shared.hidden)
        changes["embedding_parameters"] = _embedding_parameters(shared, part.factors, shared.hidden)
        changes["embedding_size"] = part.factors
    return _with_parameters(shared.model_copy(update=changes))


SHARES = (1.0, 3 / 4, 1 / 2, 1 / 4, 1 / 8)
"""Of heads and neurons, in the parts that a shared student is trained for."""


def parts_of(shared: ShapeInfo) -> list[Part]:
    """Return the parts that a shared student is trained for: each number of layers, shares of heads and of neurons.

    The smallest comes first, the largest last.
    """
    depth, heads, ffn = len(shared.heads), min(shared.heads), min(shared.ffn)
    counts = [sorted({max(1, round(share * most)) for share in SHARES}) for most in (heads, ffn)]
    return [
        Part(layers=layers, heads=some_heads, ffn=neurons)
        for layers in range(1, depth + 1)
        for some_heads in counts[0]
        for neurons in counts[1]
    ]


def pruned_shape(parent: ShapeInfo, settings: Prune) -> ShapeInfo:
    """Return the parent's shape with the ratios removed evenly: which layers lose most is known only after scoring."""
    heads, ffn = 1 - settings.heads, 1 - settings.ffn
    if settings.to is not None:
        heads = ffn = settings.remaining or 1 / settings.to.expected_speedup
    changes = {
        "heads": tuple(max(1, round(count * heads)) for count in parent.heads),
        "ffn": tuple(max(1, round(count * ffn)) for count in parent.ffn),
    }
    return _with_parameters(parent.model_copy(update=changes))


def changes_shape(student: Student) -> bool:
    """Return whether the settings ask for more than a checkpoint as it is."""
    return student.start is not None or any(getattr(student, key) is not None for key in SHAPE_KEYS)


def plan_student_shape(origin: ShapeInfo, student: Student) -> StudentShape:
    """Return the shape of the student made from ``origin`` and where its weights come from.

    Raises:
        ModelError: the origin's family cannot take this shape, or its weights cannot start it.
    """
    family = family_named(origin.family)
    layers = list(zip(origin.heads, origin.ffn, strict=True))
    size = origin.head_size or origin.hidden // max(origin.heads)
    chosen = choose_layers(student.layers, len(layers), student.choose)
    own = Widths(origin.hidden, max(origin.heads), max(origin.ffn))
    widths = _student_widths(student, own, size)
    start = _choose_start(family, origin, student, widths, own, size)
    shapes = [(min(widths.heads, layers[index][0]), min(widths.ffn, layers[index][1])) for index in chosen]
    if start == "random" and widths != own:
        shapes, size = [(widths.heads, widths.ffn)] * len(chosen), widths.hidden // widths.heads
    if student.factors is not None:
        _check_factors(origin, student.factors, widths.hidden)
    inherited = None if family.own_embedding_size else origin.embedding_size
    return StudentShape(start, chosen, widths.hidden, shapes, size, student.factors or inherited)


def _embedding_parameters(origin: ShapeInfo, size: int, hidden: int) -> int:
    """Return the parameters of embeddings whose word vectors have ``size`` numbers, in a model of this hidden size."""
    if origin.embedding_size is not None or size == hidden:
        return round(origin.embedding_parameters / (origin.embedding_size or origin.hidden) * size)
    others = origin.embedding_parameters - origin.vocabulary * origin.hidden  # of positions, as wide as the model
    return origin.vocabulary * size + size * hidden + round(others / origin.hidden * hidden)


def _check_factors(origin: ShapeInfo, factors: int, hidden: int) -> None:
    """Refuse factors for word vectors that have a size of their own, and more of them than the hidden size."""
    family = family_named(origin.family)
    if family.own_embedding_size:
        size = origin.embedding_size or origin.hidden
        raise ModelError(f"factors: the word vectors of {family.name} already have a size of their own, {size}.")
    if factors > hidden:
        raise ModelError(f"factors: {factors} numbers per token are more than the student's hidden size, {hidden}.")


def choose_layers(layers: float | tuple[int, ...] | None, depth: int, choose: LayerChoice = "spread") -> list[int]:
    """Return the indices of the layers to keep: those listed, or a number or share of ``depth`` chosen by a rule.

    Of twelve layers three are, by rule: 3, 7, 11 (`spread`, which ends with the last one), 0, 1, 2 (`first`), 9, 10, 11
    (`last`), 0, 6, 11 (`ends`, spread from the first to the last).
    """
    if layers is None:
        return list(range(depth))
    if isinstance(layers, tuple):
        if max(layers) >= depth or len(set(layers)) != len(layers):
            raise ModelError(f"layers: {list(layers)} should name different layers between 0 and {depth - 1}.")
        return list(layers)
    count = max(1, round(layers * depth)) if layers < 1 else int(layers)
    if count > depth:
        raise ModelError(f"a student of {layers:g} layers cannot be taken from {depth} layers; the most is {depth}.")
    if choose == "first":
        return list(range(count))
    if choose == "last":
        return list(range(depth - count, depth))
    if choose == "ends" and count > 1:
        return [(2 * index * (depth - 1) + count - 1) // (2 * (count - 1)) for index in range(count)]
    return [math.ceil((index + 1) * depth / count) - 1 for index in range(count)]


def _student_widths(student: Student, own: Widths, head_size: int) -> Widths:
    """Return the student's widths; those not given keep the origin's head size and ratio of FFN to hidden."""
    hidden = student.hidden or own.hidden
    if hidden == own.hidden:
        return Widths(hidden, student.heads or own.heads, student.ffn or own.ffn)
    most = own.heads if hidden < own.hidden else hidden  # a pruned teacher may have fewer heads than would fit
    heads = student.heads or min(most, max(1, hidden // head_size))
    return Widths(hidden, heads, student.ffn or round(own.ffn / own.hidden * hidden))


def _choose_start(
    family: Family, origin: ShapeInfo, student: Student, widths: Widths, own: Widths, head_size: int
) -> Start:
    """Return where the weights come from: as the settings say, or the best that the widths allow."""
    if widths == own:
        return "random" if student.start == "random" else "teacher"
    unsliceable = _slicing_problem(family, origin, widths, own, head_size)
    start = student.start or ("random" if unsliceable else "slice")
    problem = unsliceable
    if not family.resizable:
        problem = "only its number of layers can be chosen"
    elif start == "teacher":
        problem = "the widths differ; start: slice takes the most important part of the weights"
    elif start == "random":
        uneven = widths.hidden % widths.heads
        problem = f"hidden {widths.hidden} cannot be split evenly into {widths.heads} heads" if uneven else None
    if problem:
        raise ModelError(
            f"a student of {widths} cannot be made from this {family.name} of {own}: {problem}.",
            hint="choose other widths, another start, or name a checkpoint as the source",
        )
    return start


def _slicing_problem(family: Family, origin: ShapeInfo, widths: Widths, own: Widths, head_size: int) -> str | None:
    """Return why a student of these widths cannot be sliced from a model of this shape; None if it can."""
    if any(wanted > given for wanted, given in zip(widths, own, strict=True)):
        return "it would be wider, which only start: random allows"
    if not family.prunable and widths.heads * head_size != widths.hidden:
        return f"its heads of {head_size} must make up the hidden size"
    if family.projection_if_narrower and origin.embedding_size == widths.hidden:
        return f"its word vectors have {widths.hidden} dimensions too, so their projection would be missing"
    return None


def _with_parameters(shape: ShapeInfo) -> ShapeInfo:
    """Return the shape with its parameters counted: embeddings and layer matrices (one layer where they are shared)."""
    family, size = family_named(shape.family), shape.head_size or 0
    products = 3 if family.gated_ffn else 2
    layers = [
        shape.hidden * (4 * heads * size + products * ffn + 10) + ffn
        for heads, ffn in zip(shape.heads, shape.ffn, strict=True)
    ]
    matrices = layers[0] if family.shared_layers else sum(layers)
    return shape.model_copy(update={"parameters": shape.embedding_parameters + matrices + shape.hidden**2})
