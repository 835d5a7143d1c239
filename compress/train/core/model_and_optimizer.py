"""What learns in a training: a model, what is trained beside it, and the optimizer that moves both."""

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
from compress.train.core.state_dict import load_weights, strip_prefix, weights
from compress.train.fast_paths.bf16_weights import Bf16Weights
from compress.train.fast_paths.sparse_embeddings import sparse_embeddings


class ModelAndOptimizer:
    """Gradients come in batch by batch and move the weights once an update.

    The weights stay in fp32, whatever they run in; all of it goes into a checkpoint by name and comes out again.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        extra: Sequence[nn.Module],
        settings: Training,
        precision: str,
        vocabulary: NDArray[np.int64],
    ) -> None:
        """``extra`` is trained beside the model; ``vocabulary`` holds the pieces that batches can have."""
        self.model = model
        self.extra = extra
        self.words = sparse_embeddings(model, vocabulary)
        self.optimizer = make_optimizer(model, extra, settings, self.words)
        self.parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        self._copy = Bf16Weights(model, extra) if precision == "bf16" else None

    def running(self) -> AbstractContextManager[None]:
        """Within the block the model runs in the training's precision."""
        return self._copy.running() if self._copy else nullcontext()

    def begin(self) -> None:
        """Forget the gradients of the update before, and run on its weights."""
        self.optimizer.zero_grad()
        if self._copy:
            self._copy.refresh()

    def add_gradients(self, loss: Tensor) -> None:
        """Those of one batch, within `running`."""
        loss.backward()  # type: ignore[no-untyped-call]
        if self.words:
            self.words.collect()

    def norm(self) -> Tensor:
        """Of all gradients together."""
        return nn.utils.get_total_norm([each.grad for each in self.parameters if each.grad is not None])

    def step(self, factor: float, norm: float, clip: float | None) -> None:
        """Move the weights, at this part of the full rates; gradients with a ``norm`` above ``clip`` are shortened."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["full_rate"] * factor
        if clip is not None and norm > clip:
            nn.utils.clip_grads_with_norm_(self.parameters, clip, torch.full((), norm, device=self.model.device))
        self.optimizer.step()
        if self.words:
            self.words.spread()

    def tensors(self) -> dict[str, Tensor]:
        """Weights, projections and the optimizer's memory, by name."""
        tensors = {f"model.{name}": tensor for name, tensor in weights(self.model).items()}
        for number, module in enumerate(self.extra):
            tensors |= {f"extra.{number}.{name}": tensor for name, tensor in weights(module).items()}
        for number, parameter in enumerate(self.parameters):
            memory = self.optimizer.state[parameter]
            tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in memory.items()}
        return tensors

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Be what `tensors` told."""
        load_weights(self.model, strip_prefix("model.", tensors))
        self.weights_were_set()
        for number, module in enumerate(self.extra):
            load_weights(module, strip_prefix(f"extra.{number}.", tensors))
        for number, parameter in enumerate(self.parameters):
            memory = strip_prefix(f"optimizer.{number}.", tensors)
            self.optimizer.state[parameter] = {name: tensor.to(parameter.device) for name, tensor in memory.items()}

    def weights_were_set(self) -> None:
        """Somebody else wrote into the model."""
        if self.words:
            self.words.reload()
