"""Loss functions: pure functions of tensors, one per file; those of distillation are listed in one table.

Each loss is a mean over rows, so that a batch can be split over processes or accumulation steps without changing the
total. Losses that compare the texts of a batch with each other are the exception. To add a loss of distillation, write
a file with a function of the same name, add its line here and a section in `recipe/loss_schema.py`; the loss on true
labels is named by the task's kind. Nothing here imports torch, because recipes and plans read it: a function is
imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from compress.losses.tensor_ops.logit_views import LogitView

__all__ = ["EMBEDDINGS", "LOSSES", "BatchLoss", "LayerLoss", "LayerPart", "OutputForm", "OutputLoss", "TaskLoss"]

LayerPart = Literal["hidden", "query", "key", "value"]
"""Tensors of a layer that forward hooks can capture."""

EMBEDDINGS = -1
"""Layer index of the embeddings: their `hidden` is the input of the first layer, which is as wide as every other hidden
state also where a family's word vectors are narrower (ALBERT, ELECTRA)."""


@dataclass(frozen=True)
class LossFunction:
    """Where a loss function is."""

    path: str
    """`module:function`."""

    @cached_property
    def function(self) -> Callable[..., Tensor]:
        """The loss function; its arguments are those its class documents."""
        loss: Callable[..., Tensor] = resolve_name(self.path)
        return loss


@dataclass(frozen=True)
class TaskLoss(LossFunction):
    """Compares model outputs with the true labels of a batch: the task's own loss.

    ``function(outputs, batch, pooling)`` returns the mean over rows.
    """

    weighted: bool = False
    """Whether it also reads `label_weights` (`class_weights` of a recipe), where a batch has them."""
    compares_rows: bool = False
    """Whether the loss of a row depends on the other rows of its batch."""
    of_numbers: bool = False
    """Whether labels are numbers, learnt in units of their spread (`train/label_scale.py`)."""


@dataclass(frozen=True)
class OutputForm:
    """What model outputs are: how distillation compares those of two models."""

    view: str
    """`module:function` of the items that are compared (`tensor_ops/logit_views.py`)."""
    distribution: Literal["softmax", "sigmoid"] | None
    """What turns an item's logits into probabilities: of one class among all, or of each class by itself. None: they
    are numbers or vectors, compared by their squared distance."""
    has_target: bool = False
    """Whether one class of each item is the true one, by the `labels` of a batch."""

    def views(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor], pooling: str) -> tuple[LogitView, ...]:
        """Return the views of a model's outputs; where there are several, their losses are averaged."""
        views: tuple[LogitView, ...] = resolve_name(self.view)(outputs, batch, pooling)
        return views


@dataclass(frozen=True)
class LossEntry(LossFunction):
    """A line of the table."""

    about: str
    """What it compares, for `compress ls losses`."""


@dataclass(frozen=True)
class BatchLoss(LossEntry):
    """Compares model outputs with arrays of the batch.

    ``function(outputs, batch, pooling)`` returns the mean over rows.
    """

    needs: tuple[str, ...]
    """The arrays of the batch that it reads."""


@dataclass(frozen=True)
class OutputLoss(LossEntry):
    """Compares the outputs of student and teacher.

    ``function(student outputs, teacher outputs, batch, pooling, form, settings)`` returns the mean over rows.
    """

    needs: tuple[str, ...] = ("outputs",)


@dataclass(frozen=True)
class LayerLoss(LossEntry):
    """Compares a student layer with the teacher layer it is mapped to.

    ``function(student parts, teacher parts, batch, settings)`` returns the mean over rows.
    """

    needs: tuple[LayerPart, ...] = ("hidden",)
    """The parts of a layer that it reads."""
    at: Literal["mapped", "last", "embeddings"] = "mapped"
    """Where it applies: every pair of the layer map, the student's last layer, or the output of the embeddings."""
    projected: bool = False
    """Whether the student's hidden states are projected to the teacher's width first."""
    chosen: bool = False
    """Whether its settings select which of these parts it reads (`sides`)."""
    pairs_heads: bool = False
    """Whether it compares head by head, and pairs heads by the batch where layers have different numbers of them."""

    def parts(self, settings: Any) -> tuple[LayerPart, ...]:
        """Return the parts that it reads with these settings."""
        return tuple(settings.sides) if self.chosen else self.needs


LOSSES: Mapping[str, OutputLoss | LayerLoss | BatchLoss] = {
    "soft_label": OutputLoss(
        "compress.losses.distillation.soft_label:soft_label", "the teacher's softened output distribution"
    ),
    "hidden_state": LayerLoss(
        "compress.losses.distillation.hidden_state:hidden_state",
        "the outputs of the mapped layers",
        projected=True,
    ),
    "embedding": LayerLoss(
        "compress.losses.distillation.embedding:embedding",
        "the outputs of the embeddings",
        at="embeddings",
        projected=True,
    ),
    "attention": LayerLoss(
        "compress.losses.distillation.attention:attention",
        "attention maps, computed from queries and keys",
        needs=("query", "key"),
        pairs_heads=True,
    ),
    "relation": LayerLoss(
        "compress.losses.distillation.relation:relation",
        "similarities among the queries, keys and values of a text",
        needs=("query", "key", "value"),
        at="last",
        chosen=True,
    ),
    "similarity": LayerLoss(
        "compress.losses.distillation.similarity:similarity",
        "distances and angles between the texts of a batch",
        at="last",
    ),
    "contrast": LayerLoss(
        "compress.losses.distillation.contrast:contrast",
        "a text's teacher vector among those of the whole batch",
        at="last",
        projected=True,
    ),
    "margin": BatchLoss(
        "compress.losses.distillation.margin:margin",
        "score margins between documents, from a cross-encoder (retrieval)",
        needs=("scores",),
    ),
}
"""Distillation losses, by their recipe keys."""
