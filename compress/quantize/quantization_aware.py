"""Quantization-aware training: a model that computes as in INT8 learns to repeat what it computes in full precision.

Zafrir et al., "Q8BERT: Quantized 8Bit BERT", 2019 (arXiv:1910.06188), fine-tune with fake quantization; Zhang et al.,
"TernaryBERT: Distillation-aware Ultra-low Bit BERT", 2020 (arXiv:2009.12812), distil from the unquantized model, as
here. The result is an ordinary model in fp32, which is exported and quantized as any other. Where INT8 loses nothing,
as on a student of SST-2 (docs/training-settings.md), there is nothing to gain.

Fake quantization rounds tensors to the values that 8-bit integers times a scale can have (Jacob et al., "Quantization
and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018, arXiv:1712.05877, section 3).
Rounding is passed by gradients as if it were not there (Bengio et al., 2013, arXiv:1308.3432), since its own
derivative is zero. The scales are those of `quantize.dynamic`.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from compress.model_folder.model_info import TaskInfo
from compress.models.encoder_parts import base_of, family_of
from compress.models.student.factorised_embeddings import FactoredEmbedding
from compress.quantize.saturation import LARGEST_PAIR
from compress.recipe.distill_schema import QuantizationAware
from compress.recipe.student_schema import Student
from compress.tasks.base import Row
from compress.train.distill import distill, distill_from_model
from compress.train.save_trained import TrainedModel

LARGEST_WEIGHT, LARGEST_UNSIGNED = 127, 255


def fake_quantize_activations(values: Tensor) -> Tensor:
    """Return the inputs of a product (texts, …, width), rounded to unsigned 8 bits between each text's extremes.

    ONNX Runtime gives a batch one scale and one zero point (DynamicQuantizeLinear); here each text has its own, as in a
    batch of one, so that what a text learns does not depend on the others. The zero point is an integer: zero stays
    zero.
    """
    scales, zeros = _unsigned_scales(*torch.aminmax(values.detach().flatten(1), dim=1))
    return torch.fake_quantize_per_channel_affine(values, scales, zeros, 0, 0, LARGEST_UNSIGNED)


def fake_quantize_weights(weights: Tensor) -> Tensor:
    """Return the weights of a linear layer (columns, inputs), rounded to signed 8 bits with a scale for each column."""
    scales = column_scales(weights.detach())
    zeros = torch.zeros_like(scales, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(weights, scales, zeros, 0, -LARGEST_WEIGHT, LARGEST_WEIGHT)


def fake_quantize_vectors(vectors: Tensor, table: Tensor) -> Tensor:
    """Return vectors looked up in an embedding ``table``, rounded to unsigned 8 bits between the table's extremes."""
    scale, zero = _unsigned_scales(*torch.aminmax(table.detach()))
    return torch.fake_quantize_per_tensor_affine(vectors, scale, zero, 0, LARGEST_UNSIGNED)


def column_scales(weights: Tensor) -> Tensor:
    """Return the scale of each column of weights (columns, inputs): `saturation.unsaturated_scales`, in torch."""
    pairs = F.pad(weights.float(), (0, weights.shape[1] % 2)).reshape(len(weights), -1, 2)
    positive, negative = pairs.clamp(min=0.0).sum(2), pairs.clamp(max=0.0).sum(2)
    return _nonzero(torch.maximum(positive, -negative).amax(1) / (LARGEST_PAIR - 1))


def _unsigned_scales(lowest: Tensor, highest: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scales and zero points of values between these extremes; the range includes zero."""
    lowest, highest = lowest.float().clamp(max=0.0), highest.float().clamp(min=0.0)
    scales = _nonzero((highest - lowest) / LARGEST_UNSIGNED)
    # Values that are not finite have no zero point; their scale makes the result as wrong as they are.
    zeros = (-lowest / scales).round().nan_to_num(0.0).clamp(0, LARGEST_UNSIGNED)
    return scales, zeros.int()


def _nonzero(scales: Tensor) -> Tensor:
    """Return scales in which those of nothing but zeros are one."""
    return torch.where(scales == 0.0, 1.0, scales)


class FakeQuantizedLinear(nn.Linear):
    """`nn.Linear` on rounded inputs with rounded weights; its bias is added to the product, in full precision."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the product (texts, …, columns)."""
        return F.linear(fake_quantize_activations(input), fake_quantize_weights(self.weight), self.bias)


class FakeQuantizedEmbedding(nn.Embedding):
    """`nn.Embedding` that rounds what it looks up; the gradient reaches the same rows of the table as without."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the rounded vectors."""
        return fake_quantize_vectors(super().forward(input), self.weight)


class FakeQuantizedFactors(FactoredEmbedding):
    """`FactoredEmbedding` that rounds its short vectors, which enter the product as they are stored, and the matrix."""

    def forward(self, input: Tensor) -> Tensor:
        """Return vectors of the full width."""
        vectors = fake_quantize_vectors(nn.Embedding.forward(self, input), self.weight)
        return F.linear(vectors, fake_quantize_weights(self.widen.weight))


FAKE_QUANTIZED: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.Linear: FakeQuantizedLinear,
    nn.Embedding: FakeQuantizedEmbedding,
    FactoredEmbedding: FakeQuantizedFactors,
}
"""By the class of a layer that dynamic INT8 quantizes: what takes its place."""


@contextmanager
def fake_quantized(model: PreTrainedModel) -> Iterator[None]:
    """Let a model compute within the block what it will compute in INT8, with gradients; its weights stay as they are.

    Products of activations with each other (attention) and normalization remain in full precision, as in the exported
    model.
    """
    plain = {module: type(module) for module in _quantized(model) if type(module) in FAKE_QUANTIZED}
    for module, cls in plain.items():
        module.__class__ = FAKE_QUANTIZED[cls]
    try:
        yield
    finally:
        for module, cls in plain.items():
            module.__class__ = cls


def _quantized(model: PreTrainedModel) -> Iterator[nn.Module]:
    """Yield the modules of a model but the vectors of token types in a family without them, which become a constant."""
    types = None if family_of(model).token_types else base_of(model).get_submodule("embeddings")
    constant = getattr(types, "token_type_embeddings", None)
    yield from (module for module in model.modules() if module is not constant)


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
