"""Removing heads and neurons from tiny models of every prunable family."""

import copy

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from compress.errors import ModelError
from compress.model_folder.model_history import PruningInfo
from compress.models.encoder_parts import base_of, family_of, head_size, layer_shapes, layers_of, part
from compress.prune import surgery
from compress.prune.surgery import pruned_layer, remove_units, since_first_cut

PRUNABLE = ["bert", "roberta", "xlm-roberta", "electra", "distilbert"]
HEADS = [[0, 2], [1]]
FFN = [list(range(32)), list(range(16, 64))]


@pytest.fixture
def batch():
    ids = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 3, 1, 1]])
    return {"input_ids": ids, "attention_mask": torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])}


def zeroed(model, heads, ffn):
    """Return a copy in which the removed heads and neurons contribute nothing."""
    model = copy.deepcopy(model)
    family, size = family_of(model), head_size(model)
    for layer, kept_heads, kept_neurons in zip(layers_of(model), heads, ffn, strict=True):
        attention, neurons = part(layer, family.attention_output).weight.data, part(layer, family.ffn_out).weight.data
        for head in set(range(attention.shape[1] // size)) - set(kept_heads):
            attention[:, head * size : (head + 1) * size] = 0
        neurons[:, sorted(set(range(neurons.shape[1])) - set(kept_neurons))] = 0
    return model


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", PRUNABLE)
def test_removing_units_equals_zeroing_them(family, attention, tiny_model, batch):
    model = tiny_model(family)
    model.set_attn_implementation(attention)
    expected = zeroed(model, HEADS, FFN)
    pruned = remove_units(copy.deepcopy(model), HEADS, FFN)
    assert layer_shapes(pruned) == [(2, 32), (1, 48)]
    assert pruned.config._attn_implementation == attention
    with torch.no_grad():
        torch.testing.assert_close(pruned(**batch).logits, expected(**batch).logits, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(pruned(**batch).logits, model(**batch).logits, atol=1e-3)


@pytest.mark.parametrize("family", PRUNABLE)
def test_pruned_model_trains_saves_and_loads(family, tiny_model, tmp_path, batch):
    pruned = remove_units(tiny_model(family), HEADS, FFN)
    pruned(**batch, labels=torch.tensor([0, 1])).loss.backward()
    assert all(parameter.grad is not None for layer in layers_of(pruned) for parameter in layer.parameters())
    pruned.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(again.eval()(**batch).logits, pruned.eval()(**batch).logits)


@pytest.mark.parametrize("family", PRUNABLE)
@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_a_layer_of_which_nothing_stays_is_dropped(family, dropped, tiny_model, tmp_path, batch):
    model = tiny_model(family, num_hidden_layers=3)
    heads, ffn = ([[] if layer == dropped else list(range(size)) for layer in range(3)] for size in (4, 64))
    expected = copy.deepcopy(model)
    layer_list = base_of(expected).get_submodule(family_of(expected).layers)
    del layer_list[dropped]
    pruned = remove_units(model, heads, ffn)
    assert layer_shapes(pruned) == [(4, 64)] * 2
    assert pruned.config.model_type == family  # plain transformers loads it
    pruned.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(pruned(**batch).logits, expected(**batch).logits)
        assert torch.equal(again.eval()(**batch).logits, pruned(**batch).logits)


def test_other_layers_lose_units_while_one_is_dropped(tiny_model, tmp_path, batch):
    model = tiny_model("bert", num_hidden_layers=3)
    pruned = remove_units(model, [HEADS[0], [], HEADS[1]], [FFN[0], [], FFN[1]])
    assert layer_shapes(pruned) == [(2, 32), (1, 48)]
    pruned.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(again.eval()(**batch).logits, pruned.eval()(**batch).logits)


def test_pruned_model_can_be_pruned_again(tiny_model, batch):
    model = remove_units(tiny_model("bert"), HEADS, FFN)
    heads, ffn = [[1], [0]], [list(range(16)), list(range(32))]
    expected = zeroed(model, heads, ffn)
    pruned = remove_units(model, heads, ffn)
    assert layer_shapes(pruned) == [(1, 16), (1, 32)]
    with torch.no_grad():
        torch.testing.assert_close(pruned(**batch).logits, expected(**batch).logits, atol=1e-5, rtol=1e-5)


def test_keeping_all_units_changes_nothing(tiny_model, batch):
    model = tiny_model("bert").train()
    pruned = remove_units(model, [range(4)] * 2, [range(64)] * 2)
    assert type(pruned) is type(model)
    assert pruned.training


def test_uniform_ffn_is_saved_with_the_plain_model_type(tiny_model):
    pruned = remove_units(tiny_model("bert"), [range(4)] * 2, [range(32)] * 2)
    assert pruned.config.model_type == "bert"
    assert pruned.config.intermediate_size == 32


def test_nothing_is_removed_when_the_tracer_contradicts_the_family_table(tiny_model, monkeypatch):
    monkeypatch.setattr(surgery, "ATTENTION", ("query", "key", "value"))
    model = tiny_model("bert")
    with pytest.raises(ModelError, match="nothing is removed"):
        remove_units(model, HEADS, FFN)
    assert layer_shapes(model) == [(4, 64), (4, 64)]


def record(heads, heads_importance, ffn, ffn_importance):
    layer = pruned_layer(heads, torch.tensor(heads_importance), ffn, torch.tensor(ffn_importance))
    return PruningInfo(criterion="taylor", layers=(layer,))


def test_a_record_has_the_importance_of_what_was_kept_and_removed():
    (layer,) = record([0, 2], [0.123456, 1.0, 2.0], [1], [3.0, 4.0]).layers
    assert layer.heads == (0, 2)
    assert layer.heads_importance == (0.1235, 2.0)
    assert layer.removed_heads_importance == (1.0,)
    assert (layer.ffn, layer.ffn_importance, layer.removed_ffn_importance) == ((1,), (4.0,), (3.0,))


def test_indices_of_a_second_cut_are_those_before_the_first():
    first = record([0, 2, 3], [9.0, 1.0, 7.0, 6.0], [0, 1], [2.0, 3.0])
    second = record([0, 2], [0.5, 0.1, 0.4], [1], [20.0, 30.0])
    (layer,) = since_first_cut(first, second).layers
    assert layer.heads == (0, 3)
    assert layer.heads_importance == (11.0, 8.8)  # 0.5, 0.1 and 0.4 become 22, what these heads had in the first cut
    assert layer.removed_heads_importance == (1.0, 2.2)  # head 1 in the first cut, head 2 in the second
    assert (layer.ffn, layer.removed_ffn_importance) == ((1,), (2.0,))


def test_a_record_of_an_earlier_version_has_no_importance_of_what_it_removed():
    first, second = record([0, 2], [9.0, 1.0, 7.0], [0], [2.0]), record([1], [0.5, 0.1], [0], [2.0])
    old = first.layers[0].model_copy(update={"removed_heads_importance": None, "removed_ffn_importance": None})
    (layer,) = since_first_cut(first.model_copy(update={"layers": (old,)}), second).layers
    assert layer.heads == (2,)
    assert layer.removed_heads_importance is None


def test_a_layer_dropped_by_the_first_cut_stays_dropped():
    dropped = record([], [1.0, 2.0], [], [3.0]).layers[0]
    first = record([1], [1.0, 2.0], [0], [3.0, 4.0])
    first = first.model_copy(update={"layers": (dropped, *first.layers)})
    second = record([0], [5.0], [0], [6.0])
    layers = since_first_cut(first, second).layers
    assert layers[0] == dropped
    assert since_first_cut(first, second).dropped_before == (0,)
    assert since_first_cut(first, second).left == [True]
    assert first.left == [False, True]
    assert (layers[1].heads, layers[1].heads_importance) == ((1,), (2.0,))


def test_a_layer_dropped_by_the_second_cut_has_all_importance_of_what_was_removed():
    first, second = record([0, 2], [9.0, 1.0, 7.0], [0], [2.0, 3.0]), record([], [0.5, 0.1], [], [4.0])
    (layer,) = since_first_cut(first, second).layers
    assert layer.is_dropped
    assert layer.removed_heads_importance == (13.33, 1.0, 2.667)  # those of the later cut add up to 16, as before
    assert layer.removed_ffn_importance == (2.0, 3.0)
