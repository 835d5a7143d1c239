"""Short lines are padded internally, without visible effect."""

import pytest
import torch

from compress.losses.tensor_ops.token_maps import VECTOR_WIDTH, softmax

LINES = [1, 2, 5, VECTOR_WIDTH - 1, VECTOR_WIDTH, VECTOR_WIDTH + 1, 40]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_torch_softmax(line: int, dtype: torch.dtype) -> None:
    scores = torch.randn(3, 2, 4, line, dtype=dtype) * 10
    scores[0, :, :, line // 2 :] = torch.finfo(dtype).min  # padding; for one number, all of it
    result = softmax(scores)
    assert result.shape == scores.shape
    assert result.is_contiguous()
    torch.testing.assert_close(result, torch.softmax(scores, dim=-1))


def test_nan_propagates_within_its_line() -> None:
    scores = torch.tensor([[0.0, torch.nan, 1.0], [0.0, 1.0, 2.0]])
    assert softmax(scores)[0].isnan().all()
    assert not softmax(scores)[1].isnan().any()
