from types import SimpleNamespace

import numpy as np
import pytest
import torch

from compress.console import Console
from compress.errors import ModelError, UsageError
from compress.model_folder.model_history import PrunedLayer, PruningInfo
from compress.model_folder.model_info import read_info
from compress.models.encoder_parts import capture_parts
from compress.models.student.build_student import build_student
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.train.distill import distill
from compress.train.distillation.cka_layer_map import MAX_TOKENS, LayerMapBuilder, LinearCKA, layer_similarity
from compress.train.distillation.cka_layer_map import _sample as sample

SETTINGS = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3, "precision": "fp32"}
FOLLOWS = {"hidden_state": 1.0}


def maps(teacher, material, **settings):
    settings = {"losses": FOLLOWS, "layer_map": "measured", **settings}
    return LayerMapBuilder(teacher, Distill(**SETTINGS, **settings), material.train, Console("quiet"), "distill")


def test_copied_layers_map_to_their_originals(tiny_model, material):
    teacher = tiny_model("bert", num_hidden_layers=4)
    for layers in ((0, 1), (0, 1, 2), (0, 1, 2, 3)):
        student = build_student(teacher, Student(layers=layers))
        made = maps(teacher, material)
        assert made(student, 0) == tuple((layer, layer) for layer in layers)
        assert all(made.last.likeness[layer][layer] == pytest.approx(1.0, abs=1e-4) for layer in layers)


def test_padding_does_not_change_the_result(tiny_model, material):
    """The same rows one by one, without any padding, are as alike."""
    teacher, student = tiny_model("bert", num_hidden_layers=3), tiny_model("bert", seed=5)
    chosen, alone = np.arange(20), LinearCKA()
    for row in chosen:
        batch = {name: torch.from_numpy(array) for name, array in material.train.batch([row]).items()}
        seen = []
        for model in (student, teacher):
            layers = range(model.config.num_hidden_layers)
            with torch.no_grad(), capture_parts(model, {layer: ["hidden"] for layer in layers}) as parts:
                model(**{name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")})
            seen.append([parts[layer]["hidden"][0] for layer in layers])
        alone.add(*seen)
    result = layer_similarity(student, teacher, material.train, chosen)
    torch.testing.assert_close(result, alone.matrix(), atol=1e-4, rtol=1e-4)


def test_other_maps_are_used_and_cka_is_logged(tiny_model, material):
    teacher = tiny_model("bert", num_hidden_layers=4)
    made = maps(teacher, material, layer_map="last")
    assert made(build_student(teacher, Student(layers=2)), 0) == ((0, 2), (1, 3))
    assert (made.last.chosen, len(made.last.likeness), len(made.last.likeness[0])) == ("last", 2, 4)
    assert made.last.text.startswith("0 ← 2 (0.")
    assert made.last.text.endswith("last")


def without_layers(*dropped, depth=3):
    """Return the record of a cut that dropped these layers."""
    units = [() if layer in dropped else (0,) for layer in range(depth)]
    layers = [
        PrunedLayer(heads=each, ffn=each, heads_importance=(1.0,) * len(each), ffn_importance=(1.0,) * len(each))
        for each in units
    ]
    return PruningInfo(criterion="fisher", layers=tuple(layers))


@pytest.mark.parametrize(
    ("setting", "dropped", "pairs"),
    [
        ("uniform", 1, ((0, 1), (1, 5))),
        ("uniform", 0, ((0, 3), (1, 5))),
        ("last", 2, ((0, 3), (1, 4))),
        (((0, 0), (2, 4)), 1, ((0, 0), (1, 4))),
    ],
)
def test_layers_that_pruning_left_follow_the_teacher_as_before(setting, dropped, pairs, tiny_model, material):
    teacher, student = tiny_model("bert", num_hidden_layers=6), tiny_model("bert", num_hidden_layers=2)
    recovering = maps(teacher, material, layer_map=setting)
    recovering.pruning = without_layers(dropped)
    assert recovering(student, 0) == pairs


@pytest.mark.parametrize(("dropped", "pairs"), [((3,), ((0, 0), (1, 1))), ((3, 1), ((0, 0),))])
def test_a_layer_map_counts_the_layers_before_the_last_cut(dropped, pairs, tiny_model, material):
    teacher, student = tiny_model("bert"), tiny_model("bert", num_hidden_layers=4 - len(dropped))
    recovering = maps(teacher, material, layer_map=((0, 0), (1, 1)))
    recovering.pruning = without_layers(*dropped, depth=4).model_copy(update={"dropped_before": (3,)})
    assert recovering(student, 0) == pairs


def test_a_layer_map_of_dropped_layers_alone_is_refused(tiny_model, material):
    recovering = maps(tiny_model("bert"), material, layer_map=((1, 1),))
    recovering.pruning = without_layers(1)
    with pytest.raises(ModelError, match=r"dropped all student layers that it names; layers \[0, 2\] are left"):
        recovering(tiny_model("bert"), 0)


def test_cka_is_not_measured_without_mapped_losses(tiny_model, material, monkeypatch):
    teacher = tiny_model("bert")
    monkeypatch.setattr(teacher, "forward", None)
    made = maps(teacher, material, losses={"soft_label": 1.0})
    assert made(tiny_model("bert"), 0) is None
    assert made.last is None


def test_an_impossible_map_is_refused_before_anything_runs(tiny_model, material, monkeypatch):
    teacher = tiny_model("bert")
    monkeypatch.setattr(teacher, "forward", None)
    with pytest.raises(UsageError, match="layer that does not exist"):
        maps(teacher, material, layer_map=((0, 9),))(tiny_model("bert"), 0)


def test_a_row_of_many_candidates_counts_with_all_of_them():
    few = SimpleNamespace(lengths=np.full(64, 32), example_lengths=np.full(64, 32))
    many = SimpleNamespace(lengths=np.full(64, 32), example_lengths=np.full(64 * 128, 32))
    assert len(sample(few, 0)) > MAX_TOKENS // (32 * 128) == len(sample(many, 0))


def test_the_sample_is_small_and_follows_the_seed(material):
    long = SimpleNamespace(lengths=np.full(1000, MAX_TOKENS // 10), example_lengths=np.full(1000, MAX_TOKENS // 10))
    assert len(sample(long, 0)) == 10
    assert len(sample(material.train, 0)) == 50
    assert (sample(long, 1) == sample(long, 1)).all()
    assert (sample(long, 1) != sample(long, 2)).any()


def test_model_folder_stores_the_layer_map(tiny_model, tiny_folder, prepared, tmp_path):
    teacher = tiny_folder(tiny_model("bert", num_hidden_layers=3))
    settings = Distill(**SETTINGS, losses=FOLLOWS, layer_map="measured")
    distill(teacher, Student(layers=(0, 1)), prepared, settings, 0, tmp_path)
    layer_map_info = read_info(tmp_path).layer_map
    assert (layer_map_info.chosen, layer_map_info.pairs, layer_map_info.rows) == ("measured", ((0, 0), (1, 1)), 50)


def test_a_deeper_student_has_a_map_too(tiny_model, material):
    pairs = maps(tiny_model("bert"), material)(tiny_model("bert", num_hidden_layers=3, seed=3), 0)
    layers = [layer for _, layer in pairs]
    assert len(pairs) == 3
    assert layers == sorted(layers)
