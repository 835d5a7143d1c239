"""Facts of a run that a report states beside its results: data, targets, steps, how models were made.

Of a pruned model also what was kept of each layer, in as few numbers as a report shows: heads, and blocks of neurons.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from compress.measure.result_base import ResultModel
from compress.model_folder.model_history import PruningInfo
from compress.prune.latency_table import SpeedupResult


class DataFacts(ResultModel):
    """The data that models were trained and scored on."""

    source: str
    """`glue/sst2`, or the names of the files."""
    digest: str
    rows: Mapping[str, int]
    """By role: train, select, test."""
    classes: Mapping[str, Mapping[str, int]] = {}
    """By role and label, the number of rows."""
    documents: int | None = None
    """Number of documents that are searched on test, for kinds that search: the more, the harder."""
    contradictory: Mapping[str, int] = {}
    """By role, the number of rows whose text another row, of any role, has with another label."""
    duplicates: int | None = None
    """Number of texts of test that are also in train."""
    skipped: int = 0
    """Number of rows that do not fit the task."""
    truncated: Mapping[str, float] = {}
    """By role, the share of rows that are truncated for the teacher; of train estimated on 10,000 rows.

    Includes the share of searched documents as `test's documents`.
    """
    split_seed: int | None = None
    """Of the rows that are held back from train, or that limits take; None in older reports."""
    examples_per_row: float | None = None
    """Mean number of examples (choices, candidates, windows) of a row of test."""


class TargetFacts(ResultModel):
    """A target of the recipe: where and how the model is used."""

    title: str
    device: str
    threads: int
    batch: int
    length: int | Literal["data"]
    price: float | None = None
    """What an hour costs; None where the recipe does not say."""
    present: bool = True
    reason: str | None = None
    """Why it is not present on the machine."""


class ServiceFacts(ResultModel):
    """A service whose answers are the labels of the data (`compress label`)."""

    model: str
    tested: bool
    """Whether test holds the answers that were held back: then scores are agreement with the service."""
    self_agreement: float | None = None
    """How often two of its answers to one text are equal; None where it was asked once."""
    cost_of_million: float | None = None
    """What a million texts cost; None where no prices were stated, or the service states no tokens."""


class StepCost(ResultModel):
    """One step of the run."""

    name: str
    fingerprint: str
    seconds: float | None
    """Its duration when it ran, in this run or an earlier one."""
    reused: bool = False
    status: Literal["ok", "failed", "skipped"] = "ok"
    reason: str | None = None


class Provenance(ResultModel):
    """How a model was made from another, in addition to the recipe."""

    start: str
    """`layers 1, 3, 5 of the teacher`."""
    augmented: int | None = None
    """Number of augmented copies of training rows; None if unknown."""


FFN_BLOCKS = 16
"""Blocks of a layer's neurons: equal numbers of them, in order of importance."""


class Cell(ResultModel):
    """A head, or a block of neurons."""

    importance: float
    """Of a neuron, the mean."""
    kept: float
    """Share of its units."""


class PrunedUnits(ResultModel):
    """The heads or the neurons of one layer."""

    kept: int
    total: int | None = None
    """None in models of versions that did not store the importance of what was removed, like the rest."""
    importance: float | None = None
    """Share of the layer's importance that was kept."""
    cells: tuple[Cell, ...] = ()
    """Heads in order; neurons in blocks, the most important first."""


class PrunedStructure(ResultModel):
    """What a cut kept."""

    criterion: str
    heads: tuple[PrunedUnits, ...]
    """By layer."""
    ffn: tuple[PrunedUnits, ...]
    speedup: SpeedupResult | None = None
    """How a goal of speed-up was reached; None with another goal, and in older reports."""
    target: str | None = None
    """The title of the target at which it was measured; None for a latency table from elsewhere."""


def pruned_structure(pruning: PruningInfo) -> PrunedStructure:
    """Return what the report shows of a cut."""
    layers = pruning.layers
    return PrunedStructure(
        criterion=pruning.criterion,
        heads=tuple(_units(each.heads, each.heads_importance, each.removed_heads_importance, None) for each in layers),
        ffn=tuple(_units(each.ffn, each.ffn_importance, each.removed_ffn_importance, FFN_BLOCKS) for each in layers),
    )


def _units(
    kept: Sequence[int], importance: Sequence[float], removed: Sequence[float] | None, blocks: int | None
) -> PrunedUnits:
    """Return a layer's units as ``blocks`` cells in order of importance; None: each unit, in its own order."""
    if removed is None:
        return PrunedUnits(kept=len(kept))
    values, others = dict(zip(kept, importance, strict=True)), iter(removed)
    total = len(importance) + len(removed)
    units = [(values[unit], 1) if unit in values else (next(others), 0) for unit in range(total)]
    whole = sum(importance) + sum(removed)
    count = total if blocks is None else min(blocks, total)
    ordered = units if blocks is None else sorted(units, reverse=True)
    parts = [ordered[number * total // count : (number + 1) * total // count] for number in range(count)]
    return PrunedUnits(
        kept=len(kept),
        total=total,
        importance=sum(importance) / whole if whole > 0 else None,
        cells=tuple(
            Cell(
                importance=sum(value for value, _ in part) / len(part),
                kept=sum(is_kept for _, is_kept in part) / len(part),
            )
            for part in parts
        ),
    )
