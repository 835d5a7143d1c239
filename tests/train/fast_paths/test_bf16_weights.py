import pytest
import torch

from compress.families import FAMILIES
from compress.models.encoder_parts import base_of, family_of
from compress.train.core.optimizer import frozen
from compress.train.fast_paths.bf16_weights import Bf16Weights

IDS = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])


def batch_of(model):
    arrays = {"input_ids": IDS, "attention_mask": (IDS > 0).long(), "token_type_ids": torch.zeros_like(IDS)}
    return {name: arrays[name] for name in family_of(model).inputs}


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def together(model):
    return torch.cat([gradient.flatten() for gradient in gradients(model).values() if gradient is not None])


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_runs_in_bf16_and_learns_in_fp32(name, tiny_model):
    model = tiny_model(name)  # eval mode: without dropout
    model(**batch_of(model)).logits.square().sum().backward()
    expected = together(model)
    model.zero_grad()
    before = {each: parameter.clone() for each, parameter in model.named_parameters()}
    copy = Bf16Weights(model)
    copy.refresh()
    with copy.running():
        logits = model(**batch_of(model)).logits
        logits.float().square().sum().backward()
    assert logits.dtype == torch.bfloat16
    result = together(model)
    assert result.dtype == torch.float32
    assert torch.cosine_similarity(result, expected, dim=0) > 0.95
    assert all(torch.equal(parameter, before[each]) for each, parameter in model.named_parameters())


def test_gradients_add_up_in_fp32(tiny_model):
    model = tiny_model("bert")
    copy = Bf16Weights(model)
    copy.refresh()
    sums = []
    for _ in range(3):
        with copy.running():
            model(**batch_of(model)).logits.float().sum().backward()
        sums.append({name: gradient.clone() for name, gradient in gradients(model).items() if gradient is not None})
    weight = "bert.encoder.layer.0.output.dense.weight"
    assert torch.equal(sums[2][weight], sums[0][weight] + sums[0][weight] + sums[0][weight])


def test_the_copies_follow_the_weights(tiny_model):
    model = tiny_model("bert")
    copy = Bf16Weights(model)
    weight = model.classifier.weight
    for value in (0.25, 0.5):
        weight.data.fill_(value)
        copy.refresh()
        with copy.running():
            assert weight.dtype == torch.bfloat16
            assert (weight == value).all()
    assert weight.dtype == torch.float32


def test_embeddings_stay_in_fp32_and_what_they_give_is_bf16(tiny_model):
    model = tiny_model("bert")
    copy = Bf16Weights(model)
    copy.refresh()
    embeddings = base_of(model).get_submodule("embeddings")
    with copy.running():
        assert embeddings.word_embeddings.weight.dtype == torch.float32
        assert embeddings(IDS).dtype == torch.bfloat16
    assert embeddings(IDS).dtype == torch.float32


def test_what_is_frozen_gets_no_gradient(tiny_model):
    model = tiny_model("bert")
    with frozen(model, 1):
        copy = Bf16Weights(model)
        copy.refresh()
        with copy.running():
            model(**batch_of(model)).logits.float().sum().backward()
    result = gradients(model)
    assert result["bert.encoder.layer.0.output.dense.weight"] is None
    assert result["bert.encoder.layer.1.output.dense.weight"] is not None


def test_an_error_brings_the_weights_back(tiny_model):
    model = tiny_model("bert")
    copy = Bf16Weights(model)
    copy.refresh()
    with pytest.raises(ZeroDivisionError), copy.running():
        1 / 0  # noqa: B018
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_all_gradients_are_added_in_one_call(tiny_model, monkeypatch):
    """Also where a batch reaches fewer parameters than the one before."""
    calls = []
    for do in (torch._foreach_copy_, torch._foreach_add_):
        name = do.__name__
        monkeypatch.setattr(torch, name, lambda *lists, name=name, do=do: calls.append(name) or do(*lists))
    model = tiny_model("bert")
    copy = Bf16Weights(model)
    copy.refresh()
    calls.clear()
    for heads in (True, False):
        with copy.running():
            output = model(**batch_of(model)).logits if heads else model.bert(**batch_of(model)).last_hidden_state
            output.float().sum().backward()
    with copy.running():
        pass
    assert calls == ["_foreach_copy_", "_foreach_add_"]
    assert gradients(model)["classifier.weight"] is not None
