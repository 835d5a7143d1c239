"""Which layers of a teacher a student takes, by a probe of its task; what that is worth was measured."""

from __future__ import annotations

from compress.probe.probe_result import TaskScores

MEASURED = (
    "Students with the layers at which a probe's score rises most were no better than with evenly spread ones: "
    "+0.13 points, standard error 0.16, in 5 pairs of students on SST-2, MRPC and SNIPS slots."
)
"""What `benchmarks/probed_layers.py` found; every page says it."""


def layers_by_probe(scores: TaskScores, count: int) -> tuple[int, ...]:
    """Return the ``count`` layers whose output gives most more of the task than the layer below them, in order."""
    known = [each.score.value for each in scores.layers if each.layer not in ("mean", "mix")]
    if not 1 <= count < len(known):
        raise ValueError(f"{count} of {len(known) - 1} layers cannot be chosen")
    best, gains = known[0], list[float]()
    for value in known[1:]:
        gains.append(value - best)
        best = max(best, value)
    ranked = sorted(range(len(gains)), key=lambda layer: (-gains[layer], layer))
    return tuple(sorted(ranked[:count]))
