"""The layer map: the teacher layer for each student layer."""

from __future__ import annotations

from compress.errors import UsageError
from compress.losses import EMBEDDINGS, LayerLoss
from compress.model_shapes import choose_layers
from compress.recipe.loss_schema import Loss, Relation

Pairs = tuple[tuple[int, int], ...]


def layer_map(setting: str | Pairs, student: int, teacher: int) -> Pairs:
    """Return pairs (student layer, teacher layer), counted from 0, for models of these depths.

    `uniform` spreads the student's layers over the teacher's and pairs the last layers; `last` and `first` pair them
    with as many of the teacher's last or first layers. `measured` needs both models: see `cka_layer_map`.
    """
    if not isinstance(setting, str):
        return _checked(setting, student, teacher)
    if setting == "uniform" and student <= teacher:
        return tuple(enumerate(choose_layers(float(student), teacher)))
    if setting == "uniform":  # a deeper student: several of its layers are paired with one of the teacher's
        return tuple((layer, layer * teacher // student) for layer in range(student))
    if student > teacher:
        raise UsageError(
            f"layer_map: {setting} pairs each of the student's {student} layers with one of the teacher's {teacher}.",
            hint="use layer_map: uniform, or pairs [student, teacher]",
        )
    return tuple((layer, layer + (teacher - student if setting == "last" else 0)) for layer in range(student))


def compared_layers(loss: LayerLoss, section: Loss, mapped: Pairs, student: int, teacher: int) -> Pairs:
    """Return the pairs that one loss compares in models of these depths: mapped layers, last layers, or embeddings."""
    if loss.at == "embeddings":
        return ((EMBEDDINGS, EMBEDDINGS),)
    if loss.at == "mapped":
        return mapped
    target = section.layer if isinstance(section, Relation) and section.layer is not None else teacher - 1
    if target >= teacher:
        raise UsageError(f"relation.layer: {target} does not exist; the teacher has layers 0 to {teacher - 1}.")
    return ((student - 1, target),)


def _checked(pairs: Pairs, student: int, teacher: int) -> Pairs:
    for ours, theirs in pairs:
        if not (0 <= ours < student and 0 <= theirs < teacher):
            raise UsageError(
                f"layer_map: [{ours}, {theirs}] names a layer that does not exist; "
                f"the student has layers 0 to {student - 1}, the teacher 0 to {teacher - 1}."
            )
    return pairs
