"""What a probe found, as stored in probe.json, and its tables."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from compress import format_numbers as fmt
from compress.measure.result_base import Score
from compress.storage.stored_info import Info, up_to
from compress.tables import Table, make_table

LEFT = (" ", "most like", "heads")
"""Columns of words."""


class LayerScore(Info):
    """What one layer's vectors give of a task."""

    layer: str
    """`embeddings`, the number of a layer, `mean` of all, learned `mix` of all."""
    score: Score
    compression: float | None = None
    """How many times shorter the online code is than the uniform one; None for numbers and for the mix."""
    kilobits: float | None = None
    selectivity: float | None = None
    """Of tags: the score above that of the control task, in which each word has one random label."""
    weight: float | None = None
    """Of this layer in the learned mix."""


class TaskScores(Info):
    """One task on one model."""

    model: str
    task: str
    metric: str
    classes: int
    reads: str
    fitted: int
    scored: int
    """Items."""
    floor: float
    """The score of the most frequent answer."""
    layers: tuple[LayerScore, ...]
    best: str
    """The single layer with the highest score."""
    best_between: tuple[str, str]
    """The lowest and the highest layer that is best in some of 95 % of bootstrap draws."""
    equal: tuple[str, ...]
    """Layers whose difference from the best is within chance (paired, 95 %)."""

    def rising_layers(self, count: int) -> tuple[int, ...]:
        """Return the ``count`` layers that add most to the score of those below them, in order."""
        known = [each.score.value for each in self.layers if each.layer not in ("mean", "mix")]
        if not 1 <= count < len(known):
            raise ValueError(f"{count} of {len(known) - 1} layers cannot be chosen")
        gains = [value - max(known[:layer]) for layer, value in enumerate(known[1:], 1)]
        ranked = sorted(range(len(gains)), key=lambda layer: (-gains[layer], layer))
        return tuple(sorted(ranked[:count]))


class HeadPatterns(Info):
    """The heads of one model."""

    model: str
    per_layer: tuple[int, ...]
    shares: tuple[tuple[float, ...], ...]
    """By head, the share of attention in each of `patterns`."""
    patterns: tuple[str, ...]
    pattern: tuple[str, ...]
    """By head, the pattern it is said to have."""
    distance: tuple[float, ...]
    entropy: tuple[float, ...]
    alike: tuple[tuple[int, int, float], ...]
    """The pairs of heads that differ least: two heads, Jensen-Shannon divergence in bits."""
    divergence: tuple[tuple[float, ...], ...]
    tokens: int

    def name_of(self, head: int) -> str:
        """Return `3.7`: head 7 of layer 3."""
        for layer, count in enumerate(self.per_layer):
            if head < count:
                return f"{layer}.{head}"
            head -= count
        raise IndexError(head)


class LayerGeometry(Info):
    """How one layer's vectors of words lie."""

    layer: str
    anisotropy: float
    dimension: float | None


class ModelFacts(Info):
    """What is described of one model without a task."""

    model: str
    layers: int
    geometry: tuple[LayerGeometry, ...]
    heads: HeadPatterns | None = None
    no_heads: str | None = None
    """Why heads are not described."""


class LayerChanged(Info):
    """One layer of the later model."""

    layer: str
    most_like: str
    likeness: float
    same_depth: Score | None = None
    """CKA with the layer of the same number."""
    weights: float | None = None
    """How far its weights moved, as a share of their size."""


class ModelChange(Info):
    """A later model beside an earlier one."""

    earlier: str
    later: str
    words: int
    cka: tuple[tuple[float, ...], ...]
    earlier_layers: tuple[str, ...]
    layers: tuple[LayerChanged, ...]
    heads: tuple[tuple[str, int, int], ...] | None = None
    """Of a pruned model: pattern, heads that had it before, heads that were kept."""
    note: str | None = None


class ProbeReport(Info):
    """Everything that a probe found."""

    schema_version: Annotated[int, up_to(1)] = 1
    models: tuple[ModelFacts, ...]
    tasks: tuple[TaskScores, ...]
    changes: tuple[ModelChange, ...]
    left_out: Mapping[str, str] = {}
    """By task, why it was not probed."""
    rows: int
    """Rows of train that were read, at most."""
    seconds: float
    cpu: str
    versions: Mapping[str, str] = {}
    created: str


def tables(report: ProbeReport) -> Iterator[Table]:
    """Yield everything that a probe found in tables."""
    yield from score_tables(report)
    yield from layer_tables(report)
    yield from change_tables(report)


def score_tables(report: ProbeReport) -> Iterator[Table]:
    """Yield a table for each model and task: layers down."""
    for scores in report.tasks:
        rows = []
        for each in scores.layers:
            row = {"layer": each.layer, scores.metric: fmt.score(each.score.value), "95 %": _interval(each.score)}
            if any(other.compression for other in scores.layers):
                row["compression"] = "" if each.compression is None else f"{each.compression:.2f}"
            if any(other.selectivity is not None for other in scores.layers):
                row["selectivity"] = "" if each.selectivity is None else fmt.score(each.selectivity)
            row["mix"] = "" if each.weight is None else fmt.percent(each.weight)
            row[" "] = "best" if each.layer == scores.best else "as good" if each.layer in scores.equal else ""
            rows.append(row)
        between = " to ".join(dict.fromkeys(scores.best_between))
        lines = (
            f"{scores.fitted:,} items fitted, {scores.scored:,} scored; the most frequent answer has "
            f"{fmt.score(scores.floor)}. In 95 % of draws the best layer is {between}.",
        )
        yield make_table(rows, names=1, left=LEFT, title=f"{scores.task} · {scores.model}", lines=lines)


def _interval(score: Score) -> str:
    return f"{fmt.score(score.low)} to {fmt.score(score.high)}"


def layer_tables(report: ProbeReport) -> Iterator[Table]:
    """Yield a table for each model: the geometry of its layers, and the patterns of their heads."""
    for facts in report.models:
        rows, first = [], 0
        for number, each in enumerate(facts.geometry):
            row = {
                "layer": each.layer,
                "anisotropy": f"{each.anisotropy:.2f}",
                "intrinsic dimension": "" if each.dimension is None else f"{each.dimension:.1f}",
            }
            if facts.heads is not None:
                count = facts.heads.per_layer[number - 1] if number else 0
                found = facts.heads.pattern[first : first + count]
                names = sorted(set(found), key=lambda name: -found.count(name))
                row["heads"] = ", ".join(f"{found.count(name)} {name}" for name in names)
                first += count
            rows.append(row)
        lines = [f"Heads are not described: {facts.no_heads}."] if facts.no_heads else []
        if facts.heads is not None:
            name_of = facts.heads.name_of
            pairs = (f"{name_of(one)} and {name_of(other)} ({value:.2f})" for one, other, value in facts.heads.alike)
            lines.append(f"The heads most alike, by the divergence of their attention in bits: {', '.join(pairs)}.")
        yield make_table(rows, names=1, left=LEFT, title=f"layers and heads · {facts.model}", lines=lines)


def change_tables(report: ProbeReport) -> Iterator[Table]:
    """Yield a table for each two models that are compared."""
    for change in report.changes:
        rows = []
        for each in change.layers:
            row = {"layer": each.layer, "most like": each.most_like, "CKA": f"{each.likeness:.2f}"}
            if any(other.same_depth for other in change.layers):
                score = each.same_depth
                row["CKA, same layer"] = "" if score is None else f"{score.value:.3f}"
                row["95 %"] = "" if score is None else f"{score.low:.3f} to {score.high:.3f}"
            if any(other.weights is not None for other in change.layers):
                row["weights moved"] = "" if each.weights is None else fmt.percent(each.weights)
            rows.append(row)
        lines = [f"On {change.words:,} words that both see."]
        if change.note:
            lines.append(change.note)
        if change.heads:
            kept = "; ".join(f"{pattern} {kept} of {had}" for pattern, had, kept in change.heads)
            lines.append(f"Heads kept, by pattern: {kept}.")
        yield make_table(rows, names=1, left=LEFT, title=f"{change.earlier} → {change.later}", lines=tuple(lines))
