"""Quantization-aware training: a model that computes as in INT8 learns to repeat what it computes in full precision.

Zafrir et al., "Q8BERT: Quantized 8Bit BERT", 2019 (arXiv:1910.06188), fine-tune with fake quantization; Zhang et al.,
"TernaryBERT: Distillation-aware Ultra-low Bit BERT", 2020 (arXiv:2009.12812), distil from the unquantized model, as
here. The result is an ordinary model in fp32, which is exported and quantized as any other. Where INT8 loses nothing,
as on a student of SST-2 (docs/training-settings.md), there is nothing to gain.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.model_info import TaskInfo
from compress.quantize.qat.fake_quantized_layers import fake_quantized
from compress.recipe.distill_schema import QuantizationAware
from compress.recipe.student_schema import Student
from compress.tasks.base import Row
from compress.train.distill import distill, distill_from_model
from compress.train.save_trained import TrainedModel

STEP = "qat"


@contextmanager
def as_in_int8(model: PreTrainedModel) -> Iterator[None]:
    """Let a model compute as in INT8 within the block, and without dropout, whose noise would be larger than rounding.

    With dropout tiny models end further from their teacher than they began, without it nine times nearer.
    """
    shares = {module: module.p for module in model.modules() if isinstance(module, nn.Dropout)}
    for module in shares:
        module.p = 0.0
    try:
        with fake_quantized(model):
            yield
    finally:
        for module, share in shares.items():
            module.p = share


def quantization_aware(
    model: Path, data: Path, settings: QuantizationAware, seed: int, work: Path, **reporting: Any
) -> TrainedModel:
    """Write the folder of a trained copy of ``model`` to ``work``; the best weights are those with the best INT8 score.

    Args:
        model: the model folder, which stays as it is and is the teacher.
        data: a prepared data folder.
        settings: of the distillation.
        seed: of the order of rows and of dropout.
        work: receives the result; a killed training resumes from there.
        reporting: further arguments of `distill` (`console`, `track`, `unlabelled_rows`).
    """
    student = Student(source=str(model))
    return distill(model, student, data, settings, seed, work, step=STEP, within=as_in_int8, **reporting)


def quantization_aware_from_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train_rows: Sequence[Row],
    select_rows: Sequence[Row],
    task: TaskInfo,
    settings: QuantizationAware | None = None,
    **training: Any,
) -> PreTrainedModel:
    """Return a copy of ``model`` that was trained for INT8; ``training``: further arguments of `distill_from_model`."""
    student, sets = copy.deepcopy(model), (train_rows, select_rows)
    settings = settings or QuantizationAware()
    return distill_from_model(model, student, tokenizer, *sets, task, settings, within=as_in_int8, **training)
