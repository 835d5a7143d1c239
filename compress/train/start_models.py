"""The models that fine-tuning starts from: a checkpoint with a new head, fitted to the frozen encoder or random."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from transformers import PreTrainedModel

from compress.model_folder.model_history import LastLayerInfo
from compress.models.heads import head_for
from compress.models.load_save import load_model
from compress.models.nonuniform_models import POOLED
from compress.train.core.seed_restarts import FOLDER, TrainContext
from compress.train.last_layer_fit import START, Limit, stored_last_layer
from compress.train.objective import Examples, TaskObjective


@dataclass(frozen=True)
class StartModels:
    """Builds the start model of each restart from its seed."""

    folder: Path
    """The checkpoint."""
    objective: TaskObjective
    pooling: Literal["auto", "mean", "cls"] | None
    """The recipe's setting; None: what the checkpoint's own head reads."""
    probed: bool
    """Whether the head is fitted to the frozen encoder; else the checkpoint's own, or random."""
    examples: Examples
    """Encoded rows of train."""
    context: TrainContext
    limit: Limit = START
    """Of the rows that heads are fitted to."""
    features: Literal["last4"] | None = None
    """The recipe's setting."""
    head_layers: Literal["bilstm"] | None = None
    """Layers of the head before its last one, which are not fitted."""

    def build(self, seed: int) -> tuple[PreTrainedModel, LastLayerInfo | None]:
        """Return a model and the probe that its head is; None where it has no linear head, or a random one."""
        return self._with_pooling(self._chosen, seed)

    @cached_property
    def _chosen(self) -> str | None:
        """What the new head reads; None for heads that cannot choose, or for what the checkpoint's config says."""
        if head_for(self.objective.task) is not POOLED:
            return None
        if self.features:
            return "mean"
        if self.pooling != "auto":
            return self.pooling
        if not self.probed:
            return None
        probes = {name: self._with_pooling(name, self.context.seed)[1] for name in ("mean", "cls")}
        losses = {name: probe.loss for name, probe in probes.items() if probe}
        best = min(losses, key=lambda name: losses[name])
        shown = ", ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
        self.context.console.note(f"finetune: pooling {best}, by the cross-validated loss of its probe ({shown})")
        return best

    def _with_pooling(self, pooling: str | None, seed: int) -> tuple[PreTrainedModel, LastLayerInfo | None]:
        reads = {"pooling": pooling, "features": self.features}
        model = load_model(
            self.folder,
            self.objective.task,
            seed=seed,
            console=self.context.console,
            head_layers=self.head_layers,
            **reads,
        )
        if not self.probed:
            return model, None
        path = self.context.work / FOLDER / f"probe-{pooling}-{seed}.safetensors"
        objective, console = self.objective, self.context.console
        probe = stored_last_layer(
            model, self.examples, objective.loss_of, seed, path, self.limit, console, objective.scale
        )
        if probe is None:
            return model, None
        probe.apply_to(model)
        return model, probe.info.model_copy(update=reads)
