"""Loss functions: pure functions of tensors, one per file, listed in two tables (task losses and distillation losses).

Each loss is a mean over rows, so that a batch can be split over processes or accumulation steps without changing the
total. Losses that compare the texts of a batch with each other are the exception. To add a loss, write a file with a
function of the same name and add its line here; a distillation loss also needs a section in `recipe/loss_schema.py`.
The tables import no torch, because recipes and plans read them: a function is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EMBEDDINGS", "LOSSES", "TASK_LOSSES", "BatchLoss", "LayerLoss", "LayerPart", "OutputLoss"]

LayerPart = Literal["hidden", "query", "key", "value"]
"""Tensors of a layer that forward hooks can capture."""

EMBEDDINGS = -1
"""Layer index of the embeddings: their `hidden` is the input of the first layer, which is as wide as every other hidden
state also where a family's word vectors are narrower (ALBERT, ELECTRA)."""


@dataclass(frozen=True)
class LossEntry:
    """A line of a table: where the function is, and what it compares."""

    path: str
    """`module:function`."""
    about: str
    """What it compares, for `compress ls losses`."""

    @cached_property
    def function(self) -> Callable[..., Tensor]:
        """The loss function; its arguments are those its class documents."""
        loss: Callable[..., Tensor] = resolve_name(self.path)
        return loss


@dataclass(frozen=True)
class BatchLoss(LossEntry):
    """Compares model outputs with arrays of the batch (labels, scores).

    ``function(outputs, batch, pooling)`` returns the mean over rows.
    """

    needs: tuple[str, ...] = ("labels",)
    """The arrays of the batch that it reads."""
    weighted: bool = False
    """Whether it also reads `label_weights` (`class_weights` of a recipe), where a batch has them."""


@dataclass(frozen=True)
class OutputLoss(LossEntry):
    """Compares the outputs of student and teacher.

    ``function(student outputs, teacher outputs, batch, pooling, problem, settings)`` returns the mean over rows.
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

    def parts(self, settings: Any) -> tuple[LayerPart, ...]:
        """Return the parts that it reads with these settings."""
        return tuple(settings.sides) if self.chosen else self.needs


TASK_LOSSES: Mapping[str, BatchLoss] = {
    "single_label_classification": BatchLoss(
        "compress.losses.task.cross_entropy:cross_entropy", "cross-entropy of the true class", weighted=True
    ),
    "multi_label_classification": BatchLoss(
        "compress.losses.task.bce:bce", "binary cross-entropy of each class", weighted=True
    ),
    "regression": BatchLoss("compress.losses.task.mse:mse", "squared error of the number"),
    "token_classification": BatchLoss("compress.losses.task.token_ce:token_ce", "cross-entropy of each word's tag"),
    "question_answering": BatchLoss(
        "compress.losses.task.span_ce:span_ce", "cross-entropy of the answer's start and end"
    ),
    "choice": BatchLoss(
        "compress.losses.task.multiple_choice_ce:multiple_choice_ce", "cross-entropy of the right choice"
    ),
    "ranking": BatchLoss(
        "compress.losses.task.listwise_ce:listwise_ce", "listwise cross-entropy of the relevant candidates"
    ),
    "similarity": BatchLoss(
        "compress.losses.task.cosine_mse:cosine_mse", "squared error of the cosine similarity of two texts"
    ),
    "retrieval": BatchLoss(
        "compress.losses.task.in_batch_negatives:in_batch_negatives",
        "a query's document among all documents of the batch",
    ),
}
"""The loss on true labels, by a kind's `problem`."""

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
