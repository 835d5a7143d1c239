"""A model in training, the modules trained with it, their parameters by name, and their optimizer.

With gradual unfreezing the head is trained first, then one more layer from the top after every epoch.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.families import check_freeze
from compress.models.encoder_parts import base_of, family_of, layers_of
from compress.recipe.training_schema import Training, number
from compress.train.core.shares import Replica, ShareThreads, trained_parameters
from compress.train.fast_paths.bf16_weights import Bf16Weights, add_gradients
from compress.train.fast_paths.sparse_embeddings import SparseEmbeddings, sparse_embeddings


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
        threads: ShareThreads | None = None,
    ) -> None:
        """Args are the model, modules trained with it (``extra``), and the token ids that batches can have.

        Each of ``threads`` updates a part of the weights.
        """
        self.model = model
        self.extra = extra
        self.embeddings = sparse_embeddings(model, vocabulary)
        self.optimizer = make_optimizer(model, extra, settings, self.embeddings)
        self.parameters = parameters_of(self.optimizer)
        self._bf16 = Bf16Weights(model, extra) if precision == "bf16" else None
        self._threads = threads or ShareThreads()
        self._optimizers = split_optimizer(self.optimizer, self._threads.count)

    def running(self) -> AbstractContextManager[None]:
        """Run the model in the training's precision within the block."""
        return self._bf16.running() if self._bf16 else nullcontext()

    def begin_update(self) -> None:
        """Reset the gradients and refresh the bf16 weights."""
        self.optimizer.zero_grad()
        if bf16 := self._bf16:
            self._threads.run(lambda part: bf16.refresh(slice(part, None, self._threads.count)))

    def add_gradients(self, loss: Tensor) -> None:
        """Add the gradients of one batch; call within `running`."""
        loss.backward()  # type: ignore[no-untyped-call]
        if self.embeddings:
            self.embeddings.collect(self.embeddings.table.weight)

    def collect(self, replicas: Sequence[Replica]) -> None:
        """Move the gradients of replicas, summed in their order, to the weights; each thread those of its part."""
        originals = trained_parameters(self.model, self.extra)
        table = self.embeddings.table.weight if self.embeddings else None

        def add(part: int) -> None:
            for replica in replicas:
                pairs = list(zip(originals, replica.parameters, strict=True))[part :: self._threads.count]
                dense = [(weight, twin) for weight, twin in pairs if weight is not table]
                add_gradients([weight for weight, _ in dense], [twin.grad for _, twin in dense])
                for weight, twin in pairs:
                    if self.embeddings and weight is table:
                        self.embeddings.collect(twin)
                    twin.grad = None

        self._threads.run(add)

    def norm(self) -> Tensor:
        """Return the norm of all gradients."""

        def norm_of(part: int) -> Tensor:
            parameters = parameters_of(self._optimizers[part])
            return nn.utils.get_total_norm([each.grad for each in parameters if each.grad is not None])

        norms = self._threads.run(norm_of)
        return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))

    def step(self, factor: float, norm: float, clip: float | None) -> None:
        """Update the weights with ``factor`` times the peak learning rates; clip gradients to the norm ``clip``."""

        def update(part: int) -> None:
            optimizer = self._optimizers[part]
            for group in optimizer.param_groups:
                group["lr"] = group["full_rate"] * factor
            if clip is not None and norm > clip:
                total = torch.full((), norm, device=self.model.device)
                nn.utils.clip_grads_with_norm_(parameters_of(optimizer), clip, total)
            optimizer.step()

        self._threads.run(update)
        if self.embeddings:
            self.embeddings.spread()

    def tensors(self) -> dict[str, Tensor]:
        """Return weights, extra modules and optimizer state by name."""
        parts = {prefix: named_weights(module) for prefix, module in self._modules().items()}
        parts |= {f"optimizer.{n}.": self.optimizer.state[parameter] for n, parameter in enumerate(self.parameters)}
        return {prefix + name: tensor for prefix, tensors in parts.items() for name, tensor in tensors.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        for prefix, module in self._modules().items():
            load_weights(module, strip_prefix(prefix, tensors))
        self.weights_changed()
        for position, parameter in enumerate(self.parameters):
            state = strip_prefix(f"optimizer.{position}.", tensors)
            if any(tensor.ndim and tensor.shape != parameter.shape for tensor in state.values()):
                raise ModelError(
                    "the checkpoint is of another kind of device, where the optimizer holds other rows of the word"
                    " vectors (all on a GPU, those of the texts on a CPU).",
                    hint="go on where the training began, or --from STEP trains anew",
                )
            self.optimizer.state[parameter] = {name: tensor.to(parameter.device) for name, tensor in state.items()}

    def weights_changed(self) -> None:
        """Call after the model's weights were changed elsewhere."""
        if self.embeddings:
            self.embeddings.reload()

    def _modules(self) -> dict[str, nn.Module]:
        """Return the trained modules by the start of their tensors' names."""
        return {"model.": self.model, **{f"extra.{number}.": module for number, module in enumerate(self.extra)}}


def make_optimizer(
    model: PreTrainedModel, extra: Sequence[nn.Module], settings: Training, embeddings: SparseEmbeddings | None = None
) -> torch.optim.AdamW:
    """Return AdamW with groups of equal learning rate and decay; `full_rate` of a group is its peak learning rate.

    With ``embeddings`` their trained rows replace the embedding table.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    depths = parameter_depths(model)
    # By name and not by id: names come in the same order in every process, and so do the optimizer's states.
    named = [(depths[name], parameter) for name, parameter in model.named_parameters()]
    named += [(max(depths.values()), parameter) for module in extra for parameter in module.parameters()]
    top = max(depths.values())
    for depth, parameter in named:
        if parameter.requires_grad:
            rate = number(settings.learning_rate) * settings.layer_decay ** (top - depth)
            decay = settings.weight_decay if parameter.ndim > 1 else 0.0
            trained = embeddings.trained if embeddings and parameter is embeddings.table.weight else parameter
            groups.setdefault((rate, decay), []).append(trained)
    if not groups:
        raise ModelError(f"all weights of the model are frozen (freeze: {settings.freeze}).", hint="freeze less")
    options: list[dict[str, Any]] = [
        {"params": parameters, "lr": rate, "full_rate": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
    return torch.optim.AdamW(options, lr=number(settings.learning_rate), fused=True)


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Return the parameters of all groups, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def split_optimizer(optimizer: torch.optim.AdamW, count: int) -> list[torch.optim.AdamW]:
    """Return optimizers of parts of about equal size, which share the state of the given one."""
    if count == 1:
        return [optimizer]
    parts: list[set[nn.Parameter]] = [set() for _ in range(count)]
    for parameter in sorted(parameters_of(optimizer), key=Tensor.numel, reverse=True):
        min(parts, key=lambda part: sum(map(Tensor.numel, part))).add(parameter)
    split = []
    for part in parts:
        groups = [{**group, "params": [p for p in group["params"] if p in part]} for group in optimizer.param_groups]
        split.append(torch.optim.AdamW(groups, fused=True))
        split[-1].state = optimizer.state
    return split


def parameter_depths(model: PreTrainedModel) -> dict[str, int]:
    """Return each parameter's depth: 0 for embeddings, then layers, then the head; shared layers count once.

    What lies between the embeddings and the first layer (a projection to the hidden size) belongs to the embeddings.
    """
    layers = list(dict.fromkeys(layers_of(model)))
    depths = {id(parameter): len(layers) + 1 for parameter in model.parameters()}
    for depth, layer in enumerate(layers, start=1):
        depths |= {id(parameter): depth for parameter in layer.parameters()}
    below = itertools.takewhile(lambda parameter: depths[id(parameter)] != 1, base_of(model).parameters())
    depths |= {id(parameter): 0 for parameter in below}
    return {name: depths[id(parameter)] for name, parameter in model.named_parameters()}


@contextmanager
def frozen(model: PreTrainedModel, freeze: int | str | None) -> Iterator[None]:
    """Freeze the embeddings and the given number of lowest layers within the block."""
    parameters = [] if freeze is None else _frozen_parameters(model, 0 if isinstance(freeze, str) else freeze)
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def _frozen_parameters(model: PreTrainedModel, count: int) -> list[nn.Parameter]:
    check_freeze(family_of(model), len(layers_of(model)), count)
    depths = parameter_depths(model)
    return [parameter for name, parameter in model.named_parameters() if depths[name] <= count]


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


def named_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters by name; shared ones once."""
    return {name: parameter.detach().contiguous() for name, parameter in module.named_parameters()}


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into the parameters of the same name."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(tensors[name])


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with the prefix, with the prefix removed."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
