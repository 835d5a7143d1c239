"""Which teacher layer each student layer follows."""

from __future__ import annotations

from compress.errors import UsageError
from compress.losses import EMBEDDINGS, LayerLoss
from compress.model_shapes import choose_layers
from compress.recipe.loss_schema import Loss, Relation

Pairs = tuple[tuple[int, int], ...]


def layer_map(wanted: str | Pairs, student: int, teacher: int) -> Pairs:
    """Pairs (student layer, teacher layer), counted from 0, for models of these depths.

    `uniform` spreads the student over the teacher and pairs the last layers; `last` and `first` follow that many of the
    teacher's last or first layers, one by one. `measured` needs both models: `LayerMaps` in measured_map.py makes it.
    """
    if not isinstance(wanted, str):
        return _checked(wanted, student, teacher)
    if wanted == "uniform" and student <= teacher:
        return tuple(enumerate(choose_layers(float(student), teacher)))
    if wanted == "uniform":  # a deeper student: several of its layers follow one of the teacher's
        return tuple((layer, layer * teacher // student) for layer in range(student))
    if student > teacher:
        raise UsageError(
            f"layer_map: {wanted} pairs each of the student's {student} layers with one of the teacher's {teacher}.",
            hint="layer_map: uniform, or pairs [student, teacher]",
        )
    return tuple((layer, layer + (teacher - student if wanted == "last" else 0)) for layer in range(student))


def compared_layers(loss: LayerLoss, section: Loss, mapped: Pairs, student: int, teacher: int) -> Pairs:
    """The pairs that one loss compares in models of these depths: the mapped ones, the last layers, or embeddings."""
    if loss.at == "embeddings":
        return ((EMBEDDINGS, EMBEDDINGS),)
    if loss.at == "mapped":
        return mapped
    followed = section.layer if isinstance(section, Relation) and section.layer is not None else teacher - 1
    if followed >= teacher:
        raise UsageError(f"relation.layer: {followed} is not there; the teacher has layers 0 to {teacher - 1}.")
    return ((student - 1, followed),)


def _checked(pairs: Pairs, student: int, teacher: int) -> Pairs:
    for ours, theirs in pairs:
        if not (0 <= ours < student and 0 <= theirs < teacher):
            raise UsageError(
                f"layer_map: [{ours}, {theirs}] names a layer that is not there; "
                f"the student has layers 0 to {student - 1}, the teacher 0 to {teacher - 1}."
            )
    return pairs
