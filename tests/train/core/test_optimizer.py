import pytest
import torch

from compress.errors import ModelError
from compress.families import FAMILIES
from compress.models.encoder_parts import layers_of
from compress.recipe.training_schema import Training
from compress.train.core.optimizer import GradualUnfreezing, frozen, make_optimizer, parameter_depths
from compress.train.loop import train
from compress.train.objective import TaskObjective


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


@pytest.mark.parametrize(
    ("family", "projection"), [("electra", "embeddings_project"), ("albert", "embedding_hidden_mapping_in")]
)
def test_what_is_below_the_first_layer_is_frozen_with_the_embeddings(family, projection, tiny_model):
    model = tiny_model(family)
    assert any(projection in name for name in rates(model))
    with frozen(model, "embeddings"):
        assert not any(projection in name for name in rates(model))


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


SETTINGS = {"epochs": 4.0, "batch_size": 10, "learning_rate": 1e-3, "precision": "fp32"}


@pytest.mark.parametrize("name", FAMILIES)
def test_layers_follow_from_the_top_and_the_embeddings_last(name, tiny_model):
    model = tiny_model(name)
    unfreezing = GradualUnfreezing(model, "gradual", per_epoch=5)
    top = max(parameter_depths(model).values())
    assert top == (2 if name == "albert" else 3)
    assert [unfreezing.lowest(update) for update in (0, 4, 5, 9, 10)] == [top, top, top - 1, top - 1, top - 2]
    assert not unfreezing.is_complete(5 * top - 1)
    assert unfreezing.is_complete(5 * top)
    unfreezing.apply(0, [model])
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained
    assert not any("embedding" in name or ".layer" in name or "layers." in name for name in trained)
    unfreezing.apply(5 * top, [model])
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_number_is_epochs_between_layers(tiny_model):
    unfreezing = GradualUnfreezing(tiny_model("bert"), 0.4, per_epoch=5)
    assert [unfreezing.lowest(update) for update in range(7)] == [3, 3, 2, 2, 1, 1, 0]
    assert unfreezing.left_frozen(7) is None
    assert unfreezing.left_frozen(3) == (
        "the embeddings and the 1 lowest layers stay frozen: 3 updates are too few to reach them"
    )


def test_without_the_setting_everything_is_trained(tiny_model):
    model = tiny_model("bert")
    unfreezing = GradualUnfreezing(model, None, per_epoch=5)
    unfreezing.apply(0, [model])
    assert unfreezing.is_complete(0)
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_frozen_does_not_change(threads, tiny_model, material, tmp_path):
    """Two of four epochs: the head, then the higher of two layers; with threads the replicas are frozen too."""
    torch.set_num_threads(threads)
    model = tiny_model("bert")
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    settings = Training(**{**SETTINGS, "batch_size": 25}, unfreeze="gradual", max_steps=4, decay="constant")
    train(model, TaskObjective(material.task), material.train, settings, seed=0, work=tmp_path)
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert {name.split(".")[0] for name in changed} == {"bert", "classifier"}
    assert {name.partition("layer.")[2][:1] for name in changed if "layer." in name} == {"1"}
    assert not any("embeddings" in name for name in changed)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_patience_waits_until_everything_is_trained(tiny_model, material, tmp_path):
    settings = Training(**{**SETTINGS, "epochs": 6.0, "learning_rate": 1e-9}, unfreeze="gradual", patience=1)
    objective, data = TaskObjective(material.task), material.train
    evaluate = {"evaluate": material.evaluate, "start_competes": True}
    result = train(tiny_model("bert"), objective, data, settings, seed=0, work=tmp_path, **evaluate)
    assert result.updates == 20
