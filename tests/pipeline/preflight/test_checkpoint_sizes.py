"""Checkpoints whose layers are smaller than their config.json states are refused before anything runs."""

import pytest
import torch
from safetensors.torch import load_file

from compress.errors import ModelError
from compress.model_shapes import shape_of_folder
from compress.models.encoder_parts import family_of, layers_of, part
from compress.models.load_save import load
from compress.models.tiny import write_tiny_model
from compress.pipeline.preflight.model_compatibility import check_layer_sizes, compatibility_errors
from compress.pipeline.run import Options, prepare

FAMILIES = ["bert", "roberta", "electra", "distilbert"]


def pruned_elsewhere(folder, family, attribute, **saving):
    """Write a model whose second layer lost half of a part; its config.json still describes the whole one."""
    write_tiny_model(folder, family)
    model = load(folder)
    module = part(layers_of(model)[1], getattr(family_of(model), attribute))
    module.weight.data = module.weight.data[: len(module.weight) // 2].clone()
    module.bias.data = module.bias.data[: len(module.bias) // 2].clone()
    (folder / "compress.json").unlink(missing_ok=True)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, **saving)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("attribute", "message"), [("query", "layer 1 has 16 queries"), ("ffn_in", "layer 1 has 32 FFN neurons")]
)
def test_a_layer_smaller_than_stated_is_refused(family, attribute, message, tmp_path):
    pruned_elsewhere(tmp_path, family, attribute)
    with pytest.raises(ModelError, match=message):
        check_layer_sizes(tmp_path, shape_of_folder(tmp_path))


def test_weights_in_several_files_are_read(tmp_path):
    pruned_elsewhere(tmp_path, "bert", "ffn_in", max_shard_size="20KB")
    shape, index = shape_of_folder(tmp_path), tmp_path / "model.safetensors.index.json"
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    with pytest.raises(ModelError, match="layer 1 has 32 FFN neurons"):
        check_layer_sizes(tmp_path, shape)
    for content in ("", "[]", "{}", '{"weight_map": {"a": 1}}', '{"weight_map": {"a": "none"}}'):
        index.write_text(content)
        check_layer_sizes(tmp_path, shape)


def test_pickled_weights_are_refused_when_they_load(tmp_path):
    pruned_elsewhere(tmp_path, "bert", "query")
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    check_layer_sizes(tmp_path, shape_of_folder(tmp_path))
    with pytest.raises(ModelError, match=r"lacks 2 weights of the encoder, .* size: .*layer\.1"):
        load(tmp_path)


@pytest.mark.parametrize("family", [*FAMILIES, "albert", "modernbert"])
def test_whole_models_pass(family, tmp_path):
    write_tiny_model(tmp_path, family)
    check_layer_sizes(tmp_path, shape_of_folder(tmp_path))


def test_what_cannot_be_read_is_left_to_loading(tmp_path):
    write_tiny_model(tmp_path, "bert")
    shape = shape_of_folder(tmp_path)
    for content in (b"", b"\xff" * 16, b"\x02" + bytes(7) + b"[]", b"\x09" + bytes(7) + b'{"a": 12}'):
        (tmp_path / "model.safetensors").write_bytes(content)
        check_layer_sizes(tmp_path, shape)
    check_layer_sizes(None, shape)
    check_layer_sizes(tmp_path / "none", shape)


@pytest.mark.parametrize("section", ["teacher", "student"])
def test_recipes_with_such_a_model_are_refused(section, recipe_file, tmp_path):
    pruned_elsewhere(tmp_path / "other", "bert", "query")
    plan = prepare(recipe_file, [f"{section}={tmp_path / 'other'}"], Options(runs=tmp_path / "runs"))
    errors = list(compatibility_errors(plan.recipe))
    assert [error.split(":")[0] for error in errors] == [section]
    assert "layer 1 has 16 queries, and its config.json states 32" in errors[0]
