"""Gradual unfreezing: the head is trained first, then one more layer from the top after every epoch.

Howard and Ruder, "Universal Language Model Fine-tuning for Text Classification", 2018 (arXiv:1801.06146), section 3.3:
layers that hold general knowledge are changed last, when the gradients that reach them are no longer those of a new
head. What is trained is a pure function of the number of the update, so a resumed training goes on alike. Backward
passes end at the lowest trained layer, so that early updates take less time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from transformers import PreTrainedModel

from compress.train.core.optimizer import parameter_depths


class GradualUnfreezing:
    """Freezes the lower layers of a model, fewer with every stage; without ``every`` nothing."""

    def __init__(self, model: PreTrainedModel, every: Literal["gradual"] | float | None, per_epoch: int) -> None:
        """``every`` is the setting `unfreeze`, ``per_epoch`` the number of updates of an epoch."""
        self._depths = parameter_depths(model) if every is not None else {}
        self._top = max(self._depths.values(), default=0)
        epochs = 1.0 if every is None or every == "gradual" else every
        self._updates = max(1, round(epochs * per_epoch))

    def lowest(self, update: int) -> int:
        """Return the lowest depth that an update trains: 0 are the embeddings, 1 the first layer."""
        return max(0, self._top - update // self._updates)

    def is_complete(self, update: int) -> bool:
        """Return whether an update trains everything."""
        return self.lowest(update) == 0

    def left_frozen(self, total: int) -> str | None:
        """Return what ``total`` updates do not train; None where they train everything."""
        if not (lowest := self.lowest(total - 1)):
            return None
        layers = f" and the {lowest - 1} lowest layers" if lowest > 1 else ""
        return f"the embeddings{layers} stay frozen: {total:,} updates are too few to reach them"

    def apply(self, update: int, models: Sequence[PreTrainedModel]) -> None:
        """Freeze what an update does not train, in a model and its replicas."""
        lowest = self.lowest(update)
        for model in models if self._depths else ():
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(self._depths[name] >= lowest)


@contextmanager
def unfrozen_afterwards(model: PreTrainedModel) -> Iterator[None]:
    """Make the parameters that are trainable now trainable again after the block."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
