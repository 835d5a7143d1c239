import pytest
import torch

from compress.errors import ModelError
from compress.families import FAMILIES
from compress.losses import EMBEDDINGS, LOSSES, LayerLoss
from compress.models.encoder_parts import (
    base_of,
    capture_parts,
    family_of,
    head_size,
    layer_shapes,
    layers_of,
    part,
    shape_of,
)
from compress.models.student.build_student import build_student
from compress.recipe.student_schema import Student


@pytest.mark.parametrize("name", FAMILIES)
def test_every_part_path_is_a_linear_layer(name, tiny_model):
    model = tiny_model(name)
    family = family_of(model)
    assert family is FAMILIES[name]
    assert len(layers_of(model)) == 2
    paths = [family.query, family.key, family.value, family.attention_output, family.ffn_in, family.ffn_out]
    for layer in layers_of(model):
        for path in filter(None, paths):
            assert isinstance(part(layer, path), torch.nn.Linear)
        layer.get_submodule(family.attention)
    base_of(model).get_submodule("embeddings")


@pytest.mark.parametrize("name", FAMILIES)
def test_model_accepts_family_inputs(name, tiny_model):
    model = tiny_model(name)
    arrays = {"input_ids": [[2, 5, 3]], "attention_mask": [[1, 1, 1]], "token_type_ids": [[0, 0, 0]]}
    model(**{name: torch.tensor(arrays[name]) for name in family_of(model).inputs})


@pytest.mark.parametrize("name", FAMILIES)
def test_shape_of_counts_parameters(name, tiny_model):
    model = tiny_model(name)
    shape = shape_of(model)
    assert shape.head_size == head_size(model)
    vectors = model.get_input_embeddings().embedding_dim
    assert (shape.embedding_size or shape.hidden) == vectors
    assert (shape.family, shape.layers, shape.hidden) == (name, 2, 32)
    assert (shape.heads, shape.ffn) == ((4, 4), (64, 64))
    assert shape.vocabulary == 64
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert 0 < shape.embedding_parameters < shape.parameters


def test_layer_shapes_are_read_from_weights(tiny_model):
    model = tiny_model("bert")
    family, layer = family_of(model), layers_of(model)[1]
    layer.set_submodule(family.ffn_out, torch.nn.Linear(48, 32))
    layer.set_submodule(family.attention_output, torch.nn.Linear(3 * head_size(model), 32))
    assert layer_shapes(model) == [(4, 64), (3, 48)]


def test_albert_with_several_layer_groups_is_refused(tiny_model):
    model = tiny_model("albert", num_hidden_groups=2)
    with pytest.raises(ModelError, match="several layer groups"):
        layers_of(model)


SPLIT = [name for name, family in FAMILIES.items() if family.query is not None]


@pytest.mark.parametrize("name", FAMILIES)
def test_hidden_states_match_the_models_output(name, tiny_model, batch):
    model = tiny_model(name)
    with capture_parts(model, {0: {"hidden"}, 1: {"hidden"}}) as seen:
        expected = model(**batch(model), output_hidden_states=True).hidden_states
    assert sorted(seen) == [0, 1]
    assert torch.equal(seen[0]["hidden"], expected[1])
    # ModernBERT normalizes what its last layer says before it tells it.
    last = model.model.final_norm(seen[1]["hidden"]) if name == "modernbert" else seen[1]["hidden"]
    assert torch.equal(last, expected[2])


@pytest.mark.parametrize("name", SPLIT)
def test_query_and_key_reproduce_eager_attention_maps(name, tiny_model, batch):
    model = tiny_model(name)
    inputs = batch(model)
    with capture_parts(model, {0: {"query", "key", "value"}, 1: {"query", "key", "value"}}) as seen:
        model(**inputs)
    assert model.config._attn_implementation == "sdpa"
    model.set_attn_implementation("eager")
    maps = model(**inputs, output_attentions=True).attentions
    for layer, eager in enumerate(maps):
        query, key = seen[layer]["query"], seen[layer]["key"]
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        scores = scores.masked_fill(inputs["attention_mask"][:, None, None, :] == 0, -1e9)
        assert torch.allclose(scores.softmax(-1), eager, atol=1e-5)
        assert seen[layer]["value"].shape == query.shape


@pytest.mark.parametrize("name", FAMILIES)
def test_embeddings_are_the_input_of_the_first_layer(name, tiny_model, batch):
    """Of ALBERT and ELECTRA, whose embeddings are narrower than their layers, what they were brought to."""
    model = tiny_model(name)
    with capture_parts(model, {EMBEDDINGS: {"hidden"}}) as seen:
        expected = model(**batch(model), output_hidden_states=True).hidden_states
    assert torch.equal(seen[EMBEDDINGS]["hidden"], expected[0])
    assert seen[EMBEDDINGS]["hidden"].shape[-1] == model.config.hidden_size
    seen[EMBEDDINGS]["hidden"].square().sum().backward()
    assert model.get_input_embeddings().weight.grad.abs().sum() > 0
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_factorised_embeddings_are_as_wide_as_the_layers(tiny_model, batch):
    model = build_student(tiny_model("bert"), Student(layers=1, factors=8))
    with capture_parts(model, {EMBEDDINGS: {"hidden"}}) as seen:
        expected = model(**batch(model), output_hidden_states=True).hidden_states
    assert torch.equal(seen[EMBEDDINGS]["hidden"], expected[0])


def test_each_layer_captures_only_its_own_parts(tiny_model, batch):
    model = tiny_model("bert", num_hidden_layers=3)
    wanted = {EMBEDDINGS: {"hidden"}, 0: {"hidden"}, 2: {"query", "value"}}
    with capture_parts(model, wanted) as seen:
        hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
        model(**batch(model))
    assert hooks == 4
    assert {layer: set(parts) for layer, parts in seen.items()} == wanted


def test_no_hooks_are_registered_for_no_parts(tiny_model):
    model = tiny_model("bert")
    with capture_parts(model, {}) as seen, capture_parts(model, {}):
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert seen == {}


def test_shared_layers_capture_different_parts_by_depth(tiny_model, batch):
    model = tiny_model("albert", num_hidden_layers=3)
    with capture_parts(model, {EMBEDDINGS: {"hidden"}, 1: {"query"}, 2: {"hidden"}}) as seen:
        for _ in range(2):
            expected = model(**batch(model), output_hidden_states=True).hidden_states
    assert torch.equal(seen[EMBEDDINGS]["hidden"], expected[0])
    assert {layer: list(parts) for layer, parts in seen.items()} == {
        EMBEDDINGS: ["hidden"],
        1: ["query"],
        2: ["hidden"],
    }
    assert torch.equal(seen[2]["hidden"], expected[3])
    query = model.get_submodule("albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query")
    shown = seen[1]["query"].transpose(1, 2).flatten(2)
    assert torch.allclose(shown, query(expected[1]), atol=1e-6)


def test_gradients_flow_through_captured_tensors(tiny_model, batch):
    model = tiny_model("bert")
    with capture_parts(model, {0: {"query", "key", "hidden"}}) as seen:
        model(**batch(model))
    sum(tensor.square().sum() for tensor in seen[0].values()).backward()
    layer = layers_of(model)[0]
    assert layer.attention.self.query.weight.grad.abs().sum() > 0
    assert layer.output.dense.weight.grad.abs().sum() > 0
    assert layers_of(model)[1].output.dense.weight.grad is None


def test_only_requested_parts_are_stored_and_hooks_are_removed(tiny_model, batch):
    model = tiny_model("bert")
    with capture_parts(model, {1: {"hidden"}}) as seen:
        model(**batch(model))
    assert list(seen) == [1]
    assert list(seen[1]) == ["hidden"]
    hidden = seen[1]["hidden"]
    model(**batch(model))
    assert seen[1]["hidden"] is hidden
    assert not any(module._forward_hooks for module in model.modules())


def test_shared_layers_are_captured_by_depth(tiny_model, batch):
    model = tiny_model("albert", num_hidden_layers=3)
    with capture_parts(model, {0: {"hidden", "query"}, 2: {"hidden", "query"}}) as seen:
        for _ in range(2):
            expected = model(**batch(model), output_hidden_states=True).hidden_states
    assert torch.equal(seen[0]["hidden"], expected[1])
    assert torch.equal(seen[2]["hidden"], expected[3])
    assert not torch.equal(seen[0]["query"], seen[2]["query"])


def test_parts_that_cannot_be_captured_are_refused(tiny_model):
    with (
        pytest.raises(ModelError, match="modernbert computes query"),
        capture_parts(tiny_model("modernbert"), {0: {"query"}}),
    ):
        pass


def test_pruned_layers_have_their_own_head_counts(tiny_model, cut, batch):
    model = cut(tiny_model("bert"))
    with capture_parts(model, {0: {"query"}, 1: {"query"}}) as seen:
        model(**batch(model))
    assert [seen[layer]["query"].shape[1] for layer in (0, 1)] == [3, 4]


def test_all_parts_that_losses_need_can_be_captured():
    needs = {need for loss in LOSSES.values() if isinstance(loss, LayerLoss) for need in loss.needs}
    assert needs <= {"hidden", "query", "key", "value"}
