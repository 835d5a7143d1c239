"""Fake quantization: tensors rounded to the values that 8-bit integers times a scale can have, for training.

Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018
(arXiv:1712.05877), section 3. Rounding is passed by gradients as if it were not there (Bengio et al., 2013,
arXiv:1308.3432), since its own derivative is zero. The scales are those of `quantize.dynamic`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from compress.quantize.saturation import LARGEST_PAIR

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
