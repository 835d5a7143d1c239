import pytest
import torch
import torch.nn.functional as F

from compress.families import FAMILIES
from compress.models.encoder_parts import family_of
from compress.train.fast_paths import cpu_attention as attentions
from compress.train.fast_paths.bf16_weights import Bf16Weights
from compress.train.fast_paths.cpu_attention import attention, cpu_attention, softmax_backward

SHAPE = 5, 3, 7, 4


@pytest.fixture
def states():
    torch.manual_seed(0)
    return [torch.randn(SHAPE).bfloat16().requires_grad_() for _ in range(3)]


def reference(query, key, value, mask, scale):
    scores = query @ key.transpose(-1, -2) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1) @ value


@pytest.mark.parametrize("line", [1, 2, 5, 15, 16, 17, 40])
def test_softmax_backward_equals_autograd(line):
    scores = torch.randn(3, 2, 4, line, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(3, 2, 4, line, dtype=torch.float64)
    probabilities = torch.softmax(scores, dim=-1)
    (expected,) = torch.autograd.grad(probabilities, scores, gradient)
    torch.testing.assert_close(softmax_backward(gradient, probabilities.detach()), expected)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("scores", [1 << 20, 1])
def test_equals_fp32_attention(masked, scores, states, monkeypatch):
    monkeypatch.setattr(attentions, "SCORES_PER_CHUNK", scores)  # one chunk, or one per row
    mask = (torch.arange(7) < torch.tensor([7, 3, 1, 5, 2])[:, None])[:, None, None, :] if masked else None
    exact = [each.detach().float().requires_grad_() for each in states]
    result, expected = attention(*states, mask, 0.5, 0.0), reference(*exact, mask, 0.5)
    assert torch.allclose(result.float(), expected, atol=0.02)
    onto = torch.randn(SHAPE)
    result.backward(onto.bfloat16())
    expected.backward(onto)
    for ours, theirs in zip(states, exact, strict=True):
        assert torch.allclose(ours.grad.float(), theirs.grad, atol=0.05)


def test_additive_mask_equals_boolean_mask(states):
    mask = torch.arange(7) < 4
    added = torch.zeros(1, 1, 1, 7).masked_fill(~mask, torch.finfo(torch.bfloat16).min)
    assert torch.equal(
        attention(*states, mask[None, None, None], 0.5, 0.0), attention(*states, added.bfloat16(), 0.5, 0.0)
    )


def test_dropout_applies_in_forward_and_backward(states, monkeypatch):
    query, key, value = states
    mask = torch.rand(5, 3, 7, 7).lt(0.7).bfloat16() * 1.5
    monkeypatch.setattr(attentions, "keep_mask", lambda like, share: mask)
    exact = [each.detach().float().requires_grad_() for each in states]
    result = attention(query, key, value, None, 0.5, 0.3)
    expected = ((exact[0] @ exact[1].transpose(-1, -2) * 0.5).softmax(dim=-1) * mask) @ exact[2]
    assert torch.allclose(result.float(), expected, atol=0.03)
    result.float().sum().backward()
    expected.sum().backward()
    for ours, theirs in zip(states, exact, strict=True):
        assert torch.allclose(ours.grad.float(), theirs.grad, atol=0.06)


@pytest.mark.parametrize("name", FAMILIES)
def test_model_outputs_are_unchanged(name, tiny_model):
    model = tiny_model(name)
    ids = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])
    arrays = {"input_ids": ids, "attention_mask": (ids > 0).long(), "token_type_ids": torch.zeros_like(ids)}
    batch = {each: arrays[each] for each in family_of(model).inputs}
    before, expected = model.config._attn_implementation, model(**batch).logits
    copy = Bf16Weights(model)
    copy.refresh()
    with cpu_attention(model):
        assert torch.equal(model(**batch).logits, expected)  # torch's attention in fp32
        with copy.running():
            ours = model(**batch).logits
    with copy.running():
        theirs = model(**batch).logits
    assert torch.allclose(ours, theirs, atol=0.1)
    assert model.config._attn_implementation == before


def test_large_maps_use_torch_attention(states, monkeypatch):
    called = []
    monkeypatch.setattr(attentions, "sdpa_attention_forward", lambda *args, **kwargs: called.append(1) or (None, None))
    module = torch.nn.Module()
    module.is_causal = False
    attentions._forward(module, *states, None)
    assert not called
    monkeypatch.setattr(attentions, "MAX_STORED_SCORES", 5 * 3 * 7 * 7 - 1)
    attentions._forward(module, *states, None)
    assert called
    attentions._forward(module, *(each.detach() for each in states), None)  # without gradients no maps are stored
    attentions._forward(module, *states, None, dropout=0.1)  # torch's stores more with dropout
    assert len(called) == 1


def test_causal_attention_uses_torch_attention(states):
    module = torch.nn.Module()
    module.is_causal = True
    result, _ = attentions._forward(module, *states, None)
    expected = F.scaled_dot_product_attention(*states, is_causal=True)
    assert torch.equal(result, expected.transpose(1, 2))
