"""Fine-tuning of the last layer alone: rows are encoded once, and the layer is fitted to what it reads of them.

There are no updates: the probe, fitted to all rows, is the result. Peters, Ruder and Smith, "To Tune or Not to Tune?",
2019 (arXiv:1903.05987), compare it with training the whole model.
"""

from __future__ import annotations

import time

import torch
from torch import nn
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.model_history import EvaluationInfo, ProbeInfo
from compress.train.core.distributed import current_processes
from compress.train.core.train_state import TrainResult
from compress.train.core.training_data import TrainingData
from compress.train.objective import TASK
from compress.train.start_models import StartModels


def fit_frozen(starts: StartModels, data: TrainingData) -> tuple[PreTrainedModel, TrainResult, ProbeInfo]:
    """Return the encoder of ``starts``, unchanged, with the last layer that fits it best, and its score on select."""
    context, began = starts.context, time.monotonic()
    model, probe = starts.build(context.seed)
    if probe is None:
        raise ModelError(
            f"{starts.folder} has no linear layer to fit for {data.task.name}.", hint="leave out method: frozen"
        )
    score = _score(model, data)
    total = len(data.train.lengths)
    shown = f"{probe.rows:,} rows" if probe.rows >= total else f"{probe.rows:,} of {total:,} rows, which fit in memory"
    context.console.note(
        f"{context.step}: the last layer was fitted to {shown}"
        + "".join(f" ({read})" for read in (probe.features, probe.pooling) if read)
        + f", cross-validated loss {probe.loss:.3f}"
        + ("" if score is None else f", {score:.4f} on select")
    )
    evaluation = EvaluationInfo(update=0, epoch=0.0, score=score, losses={TASK: float(f"{probe.loss:.6g}")})
    seconds = time.monotonic() - began
    result = TrainResult(
        seed=context.seed,
        updates=0,
        rows=probe.rows,
        precision="fp32",
        score=score,
        best_at=0,
        history=(evaluation,),
        seconds=seconds,
        all_seconds=seconds,
    )
    return model, result, probe


def _score(model: PreTrainedModel, data: TrainingData) -> float | None:
    """Return the score on select of the main process; None without select."""
    if data.evaluate is None:
        return None
    processes, device = current_processes(), model.device
    nn.Module.to(model, processes.device).train(False)
    with torch.no_grad():
        score = data.evaluate(model) if processes.is_main else 0.0
    nn.Module.to(model, device)
    return processes.from_main(score)
