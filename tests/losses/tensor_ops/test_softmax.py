"""Short lines are made wide first; nobody may see it."""

import pytest
import torch

from compress.losses.tensor_ops.softmax import VECTOR_WIDTH, softmax, softmax_backward

LINES = [1, 2, 5, VECTOR_WIDTH - 1, VECTOR_WIDTH, VECTOR_WIDTH + 1, 40]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_torchs_softmax(line: int, dtype: torch.dtype) -> None:
    scores = torch.randn(3, 2, 4, line, dtype=dtype) * 10
    scores[0, :, :, line // 2 :] = torch.finfo(dtype).min  # padding; of one number alone, all of it
    found = softmax(scores)
    assert found.shape == scores.shape
    assert found.is_contiguous()
    torch.testing.assert_close(found, torch.softmax(scores, dim=-1))


@pytest.mark.parametrize("line", LINES)
def test_the_way_back_is_autograds(line: int) -> None:
    scores = torch.randn(3, 2, 4, line, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(3, 2, 4, line, dtype=torch.float64)
    share = torch.softmax(scores, dim=-1)
    (wanted,) = torch.autograd.grad(share, scores, gradient)
    torch.testing.assert_close(softmax_backward(gradient, share.detach()), wanted)


def test_a_number_that_is_none_stays_one() -> None:
    scores = torch.tensor([[0.0, torch.nan, 1.0], [0.0, 1.0, 2.0]])
    assert softmax(scores)[0].isnan().all()
    assert not softmax(scores)[1].isnan().any()
