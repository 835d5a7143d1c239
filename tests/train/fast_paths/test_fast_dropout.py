import pytest
import torch
from torch import nn

from compress.train.fast_paths.fast_dropout import fast_dropout, keep_mask


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.5, 0.9])
def test_a_mask_drops_its_share_and_keeps_the_mean(share):
    torch.manual_seed(0)
    mask = keep_mask(torch.empty(1001, 999), share).float()
    assert mask.shape == (1001, 999)
    factor = float(torch.tensor(1 / (1 - share)).bfloat16())
    assert mask.unique().tolist() == [0.0, factor]
    assert float((mask == 0).float().mean()) == pytest.approx(share, abs=0.004)
    assert float(mask.mean()) == pytest.approx(1.0, abs=0.01)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    mask = keep_mask(torch.empty(1_000_000), 0.5) > 0
    for apart in (1, 2, 3, 4, 5):
        assert float((mask[apart:] & mask[:-apart]).float().mean()) == pytest.approx(0.25, abs=0.003)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_dropped_gets_no_gradient(dtype):
    layer = nn.Sequential(nn.Dropout(0.4))
    values = torch.ones(64, 3, dtype=dtype, requires_grad=True)
    with fast_dropout(layer):
        result = layer(values)
        result.sum().backward()
        assert torch.equal(layer.eval()(values), values)
    assert result.dtype == values.grad.dtype == dtype
    assert torch.equal(values.grad, result)
    assert 0 < int((result == 0).sum()) < result.numel()
    assert type(layer[0]) is nn.Dropout


def test_the_seed_decides():
    masks = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        masks.append(keep_mask(torch.empty(50), 0.5))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
