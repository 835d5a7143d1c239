"""The layer map: the teacher layer for each student layer."""

from __future__ import annotations

from compress.errors import UsageError
from compress.model_shapes import choose_layers

Pairs = tuple[tuple[int, int], ...]


def layer_map(setting: str | Pairs, student: int, teacher: int) -> Pairs:
    """Return pairs (student layer, teacher layer), counted from 0, for models of these depths.

    `uniform` spreads the student's layers over the teacher's and pairs the last layers; `last` and `first` pair them
    with as many of the teacher's last or first layers. `measured` needs both models: see `cka_layer_map`.
    """
    if not isinstance(setting, str):
        for ours, theirs in setting:
            if not (0 <= ours < student and 0 <= theirs < teacher):
                raise UsageError(
                    f"layer_map: [{ours}, {theirs}] names a layer that does not exist; "
                    f"the student has layers 0 to {student - 1}, the teacher 0 to {teacher - 1}."
                )
        return setting
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
