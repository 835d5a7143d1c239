import pytest
import torch

from compress.losses.tensor_ops import token_maps
from compress.losses.tensor_ops.row_groups import MASKED_LOGIT
from compress.losses.tensor_ops.token_maps import kl_distance, squared_distance, token_map_loss
from tests.losses.layers import EXAMPLES, HEADS, TOKENS, batch_of, states


def both():
    ours, theirs = states(), states(seed=9)
    return tuple(
        (each["query"].requires_grad_(each is ours), each["key"].requires_grad_(each is ours))
        for each in (ours, theirs)
    )


def found(distance):
    ours, theirs = both()
    loss = token_map_loss(ours, theirs, batch_of(), distance)
    (3 * loss).backward()
    return loss.item(), ours[0].grad, ours[1].grad


def plain(distance):
    """Everything at once, with the gradient of autograd."""
    ours, theirs = both()
    mask = batch_of()["attention_mask"]
    scores = [a @ b.transpose(-1, -2) / a.shape[-1] ** 0.5 for a, b in (ours, theirs)]
    if distance is kl_distance:
        given, wanted = (
            each.masked_fill(mask[:, None, None] == 0, MASKED_LOGIT).log_softmax(dim=-1) for each in scores
        )
        lines = (wanted.exp() * (wanted - given)).sum(dim=-1)
    else:
        lines = ((scores[0] - scores[1]) ** 2 * mask[:, None, None]).sum(dim=-1) / mask.sum(dim=1)[:, None, None]
    rows = (lines.mean(dim=1) * mask).sum(dim=1) / mask.sum(dim=1)
    (3 * rows.mean()).backward()
    return rows.mean().item(), ours[0].grad, ours[1].grad


@pytest.mark.parametrize("distance", [kl_distance, squared_distance])
@pytest.mark.parametrize("at_once", [1, 2, 3, HEADS, HEADS + 1, 2 * HEADS, EXAMPLES * HEADS])
def test_chunked_maps_equal_unchunked(distance, at_once, monkeypatch):
    monkeypatch.setattr(token_maps, "MAX_ELEMENTS", {"cpu": at_once * TOKENS**2})
    (loss, *slopes), (expected, *wanted) = found(distance), plain(distance)
    assert loss == pytest.approx(expected, rel=1e-5)
    for slope, want in zip(slopes, wanted, strict=True):
        assert torch.allclose(slope, want, atol=1e-6)


def test_gradients_have_the_memory_layout_of_the_vectors():
    """So that turning them back into those of a linear layer copies nothing."""
    _, query, _ = found(kl_distance)
    assert query.transpose(1, 2).is_contiguous()


def test_chunks_stay_within_the_limit(monkeypatch):
    sizes = []
    monkeypatch.setattr(token_maps, "MAX_ELEMENTS", {"cpu": 2 * TOKENS**2})

    def seen(ours, theirs, real):
        sizes.append(ours.numel())
        return kl_distance(ours, theirs, real)

    assert found(seen)[0] == pytest.approx(plain(kl_distance)[0], rel=1e-5)
    assert max(sizes) <= 2 * TOKENS**2
    assert sum(sizes) == EXAMPLES * HEADS * TOKENS**2


def test_nothing_is_stored_without_gradients():
    ours, theirs = both()
    with torch.no_grad():
        loss = token_map_loss(ours, theirs, batch_of(), kl_distance)
    assert loss.grad_fn is None
    assert token_map_loss(theirs, theirs, batch_of(), kl_distance).item() == pytest.approx(0.0, abs=1e-7)
