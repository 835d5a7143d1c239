"""How a model was made, as its compress.json says: layers followed, structure and pieces kept, training."""

from collections.abc import Mapping

from compress.storage.stored_info import Info


class LayerMap(Info):
    """Which teacher layer each layer of a student followed, both counted from 0, and how alike they began."""

    chosen: str
    """The recipe's setting: `uniform`, `last`, `first`, `measured`, or `given` for explicit pairs."""
    pairs: tuple[tuple[int, int], ...]
    """(student layer, teacher layer)."""
    likeness: tuple[tuple[float, ...], ...] = ()
    """CKA before training, a row each layer of the student, a column each of the teacher: 1 where one is a rotation and
    scaling of the other, 0 where they have nothing in common."""
    rows: int = 0
    """Training rows it was measured on."""

    @property
    def text(self) -> str:
        """`0 ← 1 (0.93), 1 ← 3 (0.88), uniform`, with the likeness in brackets where it is known."""

        def similarity(ours: int, theirs: int) -> str:
            return f" ({self.likeness[ours][theirs]:.2f})" if self.likeness else ""

        return ", ".join(
            [*(f"{ours} ← {theirs}{similarity(ours, theirs)}" for ours, theirs in self.pairs), self.chosen]
        )


class PrunedLayer(Info):
    """The heads and FFN neurons of one layer that pruning kept, as indices in the model before the first cut.

    A layer that was dropped has none.
    """

    heads: tuple[int, ...]
    ffn: tuple[int, ...]
    heads_importance: tuple[float, ...]
    """In the last cut, scaled so that all that it scored add up to what they did in the cut before."""
    ffn_importance: tuple[float, ...]
    removed_heads_importance: tuple[float, ...] | None = None
    """Of the other heads, in order, in the cut that removed them, scaled likewise; None in models of versions that did
    not store it."""
    removed_ffn_importance: tuple[float, ...] | None = None
    """Likewise for FFN neurons."""

    @property
    def is_dropped(self) -> bool:
        """Whether the layer itself is gone."""
        return not self.heads


class PruningInfo(Info):
    """What the cut of a pruned model kept."""

    criterion: str
    """By which importance was computed, a name of `prune.criteria.CRITERIA`."""
    layers: tuple[PrunedLayer, ...]
    """Of the model before the first cut."""
    dropped_before: tuple[int, ...] | None = None
    """Of these, the layers that earlier cuts had dropped before the last one; None where they had dropped none."""

    @property
    def left(self) -> list[bool]:
        """For each layer of the model before the last cut, whether that left it."""
        before = [layer for number, layer in enumerate(self.layers) if number not in (self.dropped_before or ())]
        return [not layer.is_dropped for layer in before]


class VocabularyInfo(Info):
    """What pruning the vocabulary of a model kept."""

    rule: str
    """`seen`, `keep 8000`, `min_count 2`."""
    pieces_before: int
    pieces: int
    positions_before: int | None = None
    """Rows of the table of positions; None for families without one."""
    positions: int | None = None
    changed: Mapping[str, float]
    """By role, the share of rows with a text that is tokenized differently than before the pieces were removed; where
    that was done twice, than before the second time."""


class EvaluationInfo(Info):
    """One evaluation during training."""

    update: int
    epoch: float
    score: float | None
    losses: Mapping[str, float]
    """Mean of each loss since the previous evaluation."""


class ChosenSetting(Info):
    """The value of a setting that the recipe left to `auto`."""

    value: float
    reason: str

    @property
    def text(self) -> str:
        """`0.0002 (hidden size 384)`."""
        return f"{self.value:g} ({self.reason})"


class TrialInfo(Info):
    """One of several trainings, of which the best on select was used."""

    seed: int
    settings: Mapping[str, float] = {}
    """Its point of the grid, by key."""
    score: float | None
    """On select, with its best weights."""
    test: float | None = None
    """On test; None where only the best one was predicted there."""


class TrainingInfo(Info):
    """How a model was trained, without timings: those are in the step's record."""

    seed: int
    updates: int
    rows: int
    precision: str
    precision_reason: str | None = None
    """Why it is that one where the recipe left it to `auto`; None also for trainings of earlier versions."""
    score: float | None
    """The best score on select; None where nothing was evaluated."""
    best_at: int
    """The update with that score, whose weights the model has; 0: those that it started with."""
    history: tuple[EvaluationInfo, ...] = ()
    chosen: Mapping[str, ChosenSetting] = {}
    """By key of the recipe, the values of settings left to `auto`."""
    trials: tuple[TrialInfo, ...] = ()
    """All trainings in order, where there were several: from other seeds, or with other settings."""

    @property
    def chosen_precision(self) -> str | None:
        """`bf16 (this GPU has bf16 instructions)`; None where the recipe gives it, or no reason was stored."""
        return f"{self.precision} ({self.precision_reason})" if self.precision_reason else None


LAST_LAYER_ROWS = 10_000
"""Rows of train that a probe encodes, at most; of larger sets a sample."""
LAST_LAYER_VALUES = 1 << 25
"""Numbers of all features that such a probe stores."""


class LastLayerInfo(Info):
    """The linear probe that a training started from."""

    rows: int
    """Training rows that were encoded."""
    strength: float
    """The weight of its squared norm."""
    loss: float
    """The task's loss in cross-validation."""
    operations: float | None = None
    """Of encoding and fitting; None in models of versions that did not count them."""
    pooling: str | None = None
    """What its features are, where there was a choice: `mean` of all tokens, or `cls`, what the family's head reads."""
    features: str | None = None
    """`last4` where it reads the last four layers."""
