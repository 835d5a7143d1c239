import pytest

from compress.errors import ModelError
from compress.families import FAMILIES
from compress.models.encoder_parts import layers_of
from compress.recipe.training_schema import Training
from compress.train.core.optimizer import frozen, make_optimizer


def rates(model, **settings):
    optimizer = make_optimizer(model, [], Training(learning_rate=1.0, **settings))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        names[id(parameter)]: (group["full_rate"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def test_fully_frozen_model_is_refused(tiny_model):
    model = tiny_model("bert").bert
    with frozen(model, 2):
        model.pooler.requires_grad_(False)
        with pytest.raises(ModelError, match=r"all weights of the model are frozen \(freeze: 2\)"):
            rates(model, freeze=2)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_parameter_learns_once(name, tiny_model):
    model = tiny_model(name)
    assert rates(model).keys() == dict(model.named_parameters()).keys()


def test_biases_and_norms_do_not_decay(tiny_model):
    for name, (_, decay) in rates(tiny_model("bert"), weight_decay=0.1).items():
        assert decay == (0.0 if name.endswith("bias") or "LayerNorm" in name else 0.1)


def test_rates_fall_towards_the_embeddings(tiny_model):
    result = rates(tiny_model("bert"), layer_decay=0.5)
    assert result["classifier.weight"][0] == 1.0
    assert result["bert.pooler.dense.weight"][0] == 1.0
    assert result["bert.encoder.layer.1.output.dense.weight"][0] == 0.5
    assert result["bert.encoder.layer.0.output.dense.weight"][0] == 0.25
    assert result["bert.embeddings.word_embeddings.weight"][0] == 0.125


def test_shared_layers_are_one_layer(tiny_model):
    result = rates(tiny_model("albert"), layer_decay=0.5)
    layer = "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight"
    assert result[layer][0] == 0.5
    assert result["albert.embeddings.word_embeddings.weight"][0] == 0.25


def test_frozen_parts_learn_again_afterwards(tiny_model):
    model = tiny_model("bert")
    with frozen(model, "embeddings"):
        assert not any("embeddings" in name for name in rates(model))
        assert any("layer.0" in name for name in rates(model))
    with frozen(model, 1):
        result = rates(model)
        assert not any("embeddings" in name or "layer.0" in name for name in result)
        assert any("layer.1" in name for name in result)
    assert rates(model).keys() == dict(model.named_parameters()).keys()


def test_what_was_frozen_before_stays_frozen(tiny_model):
    model = tiny_model("bert")
    model.classifier.weight.requires_grad_(False)
    model.bert.embeddings.LayerNorm.weight.requires_grad_(False)
    with frozen(model, "embeddings"):
        pass
    assert not model.bert.embeddings.LayerNorm.weight.requires_grad
    assert not model.classifier.weight.requires_grad


def test_freezing_missing_layers_is_refused(tiny_model):
    with pytest.raises(ModelError, match=r"exceeds the model's number of layers \(2\)"), frozen(tiny_model("bert"), 3):
        pass
    with pytest.raises(ModelError, match="share their weights"), frozen(tiny_model("albert"), 1):
        pass
    with frozen(model := tiny_model("bert"), 2):
        assert not any(p.requires_grad for layer in layers_of(model) for p in layer.parameters())
