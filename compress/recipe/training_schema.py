"""The sections about training: fine-tuning, the student, distilling, pruning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from compress.recipe.field_types import Count, Frozen, Positive, Share, ShortForm, listed, size, switched
from compress.recipe.loss_schema import Attention, HiddenState, Losses, SoftLabel, Unmoved, collect_losses

CACHE = 2 * 2**30
"""Bytes that what a teacher said may take of the disk where the recipe tells no other number."""


class Checkpoints(Frozen):
    """How often training saves what it needs to go on; never part of a fingerprint."""

    minutes: Positive | None = 5.0
    steps: Count | None = None


class Training(Frozen):
    """One training: the same keys for finetune, distill and the recovery after pruning."""

    epochs: Positive = 3.0
    max_steps: Count | None = None
    batch_size: Count = 32
    accumulate: Count = 1
    learning_rate: Positive = 5e-5
    warmup: Share = 0.1
    """Share of all steps in which the rate rises from zero."""
    decay: Literal["linear", "cosine", "constant"] = "linear"
    weight_decay: float = Field(0.01, ge=0.0)
    clip: Positive | None = 1.0
    """Largest norm of the gradient."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto` takes bf16 where the device has instructions for it; weights are kept in fp32 all the same."""
    compile: bool = False
    """On a GPU: torch.compile for the parts of layers that are not matrix products, with lengths padded to multiples
    of 32. A training that was killed then goes on, but not bit for bit. On a CPU it is passed over."""
    evaluations: Count = 1
    """Evaluations on select in each epoch; the best one's weights are kept."""
    patience: Count | None = None
    """Stop after so many evaluations without a better one."""
    restarts: Count = 1
    """Trainings from different seeds, of which the best on select is kept."""
    freeze: int | Literal["embeddings"] | None = Field(None)
    """`embeddings`, or a number: the embeddings and so many lowest layers keep their weights."""
    layer_decay: float = Field(1.0, gt=0.0, le=1.0)
    """Each lower layer learns at this times the rate of the one above it."""
    checkpoint: Checkpoints = Checkpoints()


class Finetune(Training):
    """Fine-tuning of the teacher. `reuse: false` trains even a teacher that already has a head for this task."""

    reuse: bool = True


class Student(ShortForm):
    """The smaller model: a card, a folder or hub id to start from, or a shape."""

    source: str | None = None
    revision: str | None = None
    layers: float | tuple[int, ...] | None = None
    """A number of layers, a share of the teacher's (0.5), or which of the teacher's layers to take ([1, 3, 5])."""
    choose: Literal["spread", "first", "last", "ends"] = "spread"
    """Which layers a number takes: evenly spread up to the last one, the lowest, the highest, or spread from the first
    to the last."""
    hidden: Count | None = None
    heads: Count | None = None
    ffn: Count | None = None
    embedding: Count | None = None
    """Width of a text's embedding (similarity, retrieval): by default the teacher's, whose space is kept."""
    factors: Count | None = None
    """Word vectors become so many numbers a piece and one matrix that widens them: most of a small model is these."""
    start: Literal["teacher", "slice", "svd", "random"] | None = None
    """Where the weights come from: copied from the teacher's layers (the default where the widths are the same); the
    most important parts of them (`slice`, the default where the student is narrower and its family can); the hidden
    size by principal directions instead (`svd`); or fresh ones (`random`, the default elsewhere)."""

    @classmethod
    def short_key(cls) -> str:
        """`student: half-depth`."""
        return "source"

    @field_validator("layers")
    @classmethod
    def _layers_can_be_counted(cls, layers: float | tuple[int, ...] | None) -> float | tuple[int, ...] | None:
        if isinstance(layers, float) and (layers <= 0 or (layers >= 1 and layers != int(layers))):
            raise ValueError(f"expected a number of layers or a share between 0 and 1, got {layers:g}")
        return layers

    @model_validator(mode="after")
    def _some_shape(self) -> Student:
        shape = (self.source, self.layers, self.hidden, self.heads, self.ffn, self.factors)
        if all(each is None for each in shape):
            raise ValueError("name a student card or folder, or give its number of layers")
        return self

    @model_validator(mode="after")
    def _choice_has_a_number(self) -> Student:
        numbered = self.source is not None if self.layers is None else not isinstance(self.layers, tuple)
        if self.choose != "spread" and not numbered:
            raise ValueError(f"choose: {self.choose} goes with a number of layers or a share of them")
        return self


def _beside_phases(value: Mapping[str, Any]) -> list[str]:
    """The keys of losses that count from beginning to end."""
    losses = value.get("losses") or {}
    chosen = losses.chosen() if isinstance(losses, Losses) else losses
    names = [name for name, loss in chosen.items() if loss is not None]
    return [*names, *(["hard_label"] if "hard_label" in value else [])]


LAYERS = Losses(soft_label=SoftLabel(), hidden_state=HiddenState(), attention=Attention())
ANSWERS = Losses(soft_label=SoftLabel(), hidden_state=HiddenState())


class Phase(Frozen):
    """A part of a training in which other losses count: TinyBERT first copies layers, then answers."""

    share: float = Field(gt=0.0, le=1.0)
    """Of all updates; the shares of all phases make one."""
    losses: Losses = Losses()
    hard_label: Unmoved = 0.0

    _losses = model_validator(mode="before")(collect_losses)


class FurtherTeacher(ShortForm):
    """A model folder or hub id that answers the same task; its answers are averaged with the teacher's."""

    source: str
    revision: str | None = None
    weight: Positive = 1.0
    """The recipe's own teacher weighs 1."""

    @classmethod
    def short_key(cls) -> str:
        """`teachers: [folder]`."""
        return "source"


class Cache(ShortForm):
    """What the teacher said stays on disk between epochs."""

    disk: Annotated[int, size, Field(ge=0)] | None = None
    """Bytes it may take; `2GiB`, `500MB`. Where none are told, 2 GiB, and on a GPU for answers alone."""

    @property
    def limit(self) -> int:
        """The bytes, told or not."""
        return CACHE if self.disk is None else self.disk

    @classmethod
    def short_key(cls) -> str:
        """`cache: 20GiB`."""
        return "disk"


class Augment(Frozen):
    """More texts to distil on: words of the training rows, replaced by what a masked language model would say."""

    model: str
    """A folder or hub id (`owner/name@revision`) with a masked language model."""
    copies: Count = 1
    """New rows made of each row of train."""
    replace: float = Field(0.4, gt=0.0, le=1.0)
    """The share of words that are replaced."""
    candidates: Count = 15
    """Each replacement is drawn from so many of the likeliest."""


BATCH_LOSSES = frozenset({"similarity", "contrast"})
"""The losses that compare the texts of a batch among themselves."""


class Distill(Training):
    """Training of the student on the teacher's answers and inner states."""

    epochs: Positive = 3.0
    losses: Losses = LAYERS
    """Each loss's weight and knobs."""
    hard_label: Unmoved = 0.5
    """The weight of the task's own loss on the true labels."""
    temperature: Positive = 4.0
    phases: tuple[Phase, ...] = ()
    """One after another, instead of `losses` and `hard_label` from beginning to end."""
    cross_encoder: str | None = None
    """A folder with a model that ranks pairs of texts, whose margins the loss `margin` follows (retrieval)."""
    layer_map: Literal["uniform", "last", "first", "measured"] | tuple[tuple[int, int], ...] = "uniform"
    """Which teacher layer each student layer follows, or pairs [student, teacher] counted from 0; `measured` takes the
    layers that are most alike on a sample of train."""
    teachers: Annotated[tuple[FurtherTeacher, ...], listed] = ()
    """Further teachers, whose answers are averaged with those of the recipe's own."""
    cache: Annotated[Cache | Literal[False], switched] = Cache()
    augment: Augment | None = None

    @model_validator(mode="before")
    @classmethod
    def _losses_or_phases(cls, value: Any) -> Any:
        value = collect_losses(value)
        if not isinstance(value, Mapping):
            return value
        beside = _beside_phases(value)
        if value.get("phases") and beside:
            away = dict.fromkeys("hard_label=null" if name == "hard_label" else "losses=null" for name in beside)
            raise ValueError(
                f"phases have losses of their own; beside them in the way: {', '.join(beside)}. Write them there, "
                f"or leave phases out (--set of this section's {' and '.join(away)} takes them away)"
            )
        if value.get("losses", LAYERS) is None or value.get("phases"):  # nothing is left of them but their key
            return {key: entry for key, entry in value.items() if key != "losses"}
        return value

    @model_validator(mode="after")
    def _texts_have_others(self) -> Distill:
        alone = self.loss_names() & BATCH_LOSSES
        if self.batch_size == 1 and alone:
            raise ValueError(f"{', '.join(sorted(alone))}: compares the texts of a batch, and batch_size is 1")
        return self

    @field_validator("phases")
    @classmethod
    def _phases_make_one(cls, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        total = sum(phase.share for phase in phases)
        if phases and abs(total - 1.0) > 1e-6:
            raise ValueError(f"the shares of all phases should make 1; they make {total:g}")
        return phases

    @field_validator("layer_map")
    @classmethod
    def _pairs_name_layers(cls, layer_map: str | tuple[tuple[int, int], ...]) -> str | tuple[tuple[int, int], ...]:
        if not layer_map:
            raise ValueError("no pair is named: give some, [[0, 1], [1, 3]], or leave layer_map out")
        if isinstance(layer_map, str):
            return layer_map
        if min(min(pair) for pair in layer_map) < 0:
            raise ValueError("layers count from 0, the lowest")
        if twice := next((pair for pair in layer_map if layer_map.count(pair) > 1), None):
            raise ValueError(f"names the pair {list(twice)} twice, which would count twice")
        return layer_map

    @model_serializer(mode="wrap")
    def _without_what_phases_replace(self, told: SerializerFunctionWrapHandler) -> dict[str, Any]:
        replaced = ("losses", "hard_label") if self.phases else ()
        return {key: value for key, value in told(self).items() if key not in replaced}

    def loss_names(self) -> set[str]:
        """The losses that weigh anything in any phase."""
        return {name for phase in self.phases_or_default() for name in phase.losses.chosen()}

    def phases_or_default(self) -> tuple[Phase, ...]:
        """The phases in order; one where the recipe tells none."""
        return self.phases or (Phase(share=1.0, losses=self.losses, hard_label=self.hard_label),)


class Recover(Distill):
    """The distillation that follows pruning."""

    epochs: Positive = 2.0
    losses: Losses = ANSWERS


class PruneTo(Frozen):
    """What is left after pruning, instead of what is removed."""

    parameters: float = Field(gt=0.0, lt=1.0)
    """Share of the encoder layers' parameters (without embeddings) that stays."""


class Prune(Frozen):
    """Removal of heads and FFN neurons by first-order Taylor importance, uneven across layers."""

    heads: Share = 0.0
    ffn: Share = 0.0
    to: PruneTo | None = None
    batches: Count = 64
    """Batches of train over which importance is summed."""
    round_to: Count = 16
    """FFN widths are multiples of this: kernels like them."""
    even: bool = False
    """The same share from every layer."""
    recover: Annotated[Recover | Literal[False], switched] = Recover()

    @model_validator(mode="after")
    def _something_to_prune(self) -> Prune:
        if self.to is None and not (self.heads or self.ffn):
            raise ValueError("say how much: heads: 0.25, ffn: 0.5, or to: {parameters: 0.3}")
        if self.to is not None and (self.heads or self.ffn):
            raise ValueError("give either the shares removed (heads, ffn) or the share left (to)")
        return self
