"""A model in training, the modules trained with it, and their optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.recipe.training_schema import Training
from compress.train.core.optimizer import make_optimizer
from compress.train.core.state_dict import load_weights, named_weights, strip_prefix
from compress.train.fast_paths.bf16_weights import Bf16Weights
from compress.train.fast_paths.sparse_embeddings import sparse_embeddings


class ModelAndOptimizer:
    """Accumulates gradients batch by batch and updates the weights once per update.

    The weights are fp32 whatever precision the model runs in; `tensors` and `load` save and restore everything by name.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        extra: Sequence[nn.Module],
        settings: Training,
        precision: str,
        vocabulary: NDArray[np.int64],
    ) -> None:
        """Args are the model, modules trained with it (``extra``), and the token ids that batches can have."""
        self.model = model
        self.extra = extra
        self.embeddings = sparse_embeddings(model, vocabulary)
        self.optimizer = make_optimizer(model, extra, settings, self.embeddings)
        self.parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        self._bf16 = Bf16Weights(model, extra) if precision == "bf16" else None

    def running(self) -> AbstractContextManager[None]:
        """Run the model in the training's precision within the block."""
        return self._bf16.running() if self._bf16 else nullcontext()

    def begin_update(self) -> None:
        """Reset the gradients and refresh the bf16 weights."""
        self.optimizer.zero_grad()
        if self._bf16:
            self._bf16.refresh()

    def add_gradients(self, loss: Tensor) -> None:
        """Add the gradients of one batch; call within `running`."""
        loss.backward()  # type: ignore[no-untyped-call]
        if self.embeddings:
            self.embeddings.collect()

    def norm(self) -> Tensor:
        """Return the norm of all gradients."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        return nn.utils.get_total_norm(gradients)

    def step(self, factor: float, norm: float, clip: float | None) -> None:
        """Update the weights with ``factor`` times the peak learning rates; clip gradients to the norm ``clip``."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["full_rate"] * factor
        if clip is not None and norm > clip:
            nn.utils.clip_grads_with_norm_(self.parameters, clip, torch.full((), norm, device=self.model.device))
        self.optimizer.step()
        if self.embeddings:
            self.embeddings.spread()

    def tensors(self) -> dict[str, Tensor]:
        """Return weights, extra modules and optimizer state by name."""
        tensors = {f"model.{name}": tensor for name, tensor in named_weights(self.model).items()}
        for number, module in enumerate(self.extra):
            tensors |= {f"extra.{number}.{name}": tensor for name, tensor in named_weights(module).items()}
        for number, parameter in enumerate(self.parameters):
            state = self.optimizer.state[parameter]
            tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in state.items()}
        return tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        load_weights(self.model, strip_prefix("model.", tensors))
        self.weights_changed()
        for number, module in enumerate(self.extra):
            load_weights(module, strip_prefix(f"extra.{number}.", tensors))
        for number, parameter in enumerate(self.parameters):
            state = strip_prefix(f"optimizer.{number}.", tensors)
            self.optimizer.state[parameter] = {name: tensor.to(parameter.device) for name, tensor in state.items()}

    def weights_changed(self) -> None:
        """Call after the model's weights were changed elsewhere."""
        if self.embeddings:
            self.embeddings.reload()
