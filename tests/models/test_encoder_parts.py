import pytest
import torch

from compress.errors import ModelError
from compress.families import FAMILIES
from compress.models.encoder_parts import base_of, family_of, head_size, layer_shapes, layers_of, part, shape_of


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
