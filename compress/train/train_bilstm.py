"""Training of a BiLSTM on the features of a frozen encoder: the paper's feature-based use for tags.

Devlin et al., 2019 (arXiv:1810.04805), section 5.3. The encoder runs once over train; only the head is trained.
"""

from __future__ import annotations

from collections.abc import Callable

from transformers import PreTrainedModel

from compress.model_info import TaskInfo
from compress.models.encoder_parts import base_of
from compress.models.last_layers_head import LastLayersHead
from compress.recipe.finetune_schema import Finetune
from compress.train.core.seed_restarts import FOLDER, train_best
from compress.train.core.train_state import TrainResult
from compress.train.core.training_data import TrainingData
from compress.train.encoder_features import EncoderFeatures
from compress.train.objective import TASK, Batch, Losses, TaskObjective
from compress.train.start_models import StartModels


class HeadObjective(TaskObjective):
    """The task's loss of a head that reads stored features in place of its encoder."""

    def __init__(self, task: TaskInfo, features: EncoderFeatures) -> None:
        super().__init__(task)
        self.features = features

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Compute the task's loss."""
        assert isinstance(model, LastLayersHead)
        features = self.features(batch).to(next(model.bilstm.parameters()).dtype)
        outputs = model.read(features, batch["attention_mask"])
        return {TASK: self.loss_of(outputs, batch)}


def train_bilstm(
    starts: StartModels,
    data: TrainingData,
    settings: Finetune,
    score_on_test: Callable[[PreTrainedModel], float | None] | None = None,
) -> tuple[PreTrainedModel, TrainResult]:
    """Return the encoder of ``starts``, unchanged, with the best head on select of all seeds and points of the grid."""
    context = starts.context
    path = context.work / FOLDER / "features.values"
    features = EncoderFeatures(starts.build(context.seed)[0], data.train, path, context.console, context.step)
    return train_best(
        lambda seed: _frozen_encoder(starts.build(seed)[0]),
        lambda model, seed: HeadObjective(data.task, features),
        data,
        settings,
        context,
        start_competes=False,
        score_on_test=score_on_test,
    )


def _frozen_encoder(model: PreTrainedModel) -> PreTrainedModel:
    base_of(model).requires_grad_(False)
    return model
