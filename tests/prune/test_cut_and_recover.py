"""Cutting and recovering: from folders, from models in memory, and after a kill."""

import io
import json
from types import SimpleNamespace

import pytest
import torch

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.errors import ModelError, UsageError
from compress.model_folder.model_info import read_info
from compress.models.encoder_parts import family_of, layer_shapes, layers_of, part, shape_of
from compress.models.load_save import load
from compress.prune.criteria import CRITERIA
from compress.prune.cut_and_recover import cut, cut_from_model, prune_from_model
from compress.prune.prune_ratios import layer_parameters
from compress.recipe.prune_schema import Prune
from compress.recipe.student_schema import Student
from compress.recipe.task_schema import Task
from compress.storage.file_digests import digests
from compress.train.core import seed_restarts
from compress.train.core.checkpoints import training_identity
from compress.train.core.seed_restarts import delete_work_files
from compress.train.core.training_data import fast_tokenizer
from compress.train.distill import distill
from tests.prune.test_latency_table import table

GOOD, BAD = ("good", "great", "fine"), ("bad", "dull", "not")
CLOSING = ("film", "plot", "it was so", "the bit of plot")


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Return a prepared data folder."""
    folder = tmp_path_factory.mktemp("films")
    lines = [
        json.dumps({"text": f"the {word} {rest} {number % 7 * 'very '}", "label": label})
        for number in range(8)
        for label, words in (("bad", BAD), ("good", GOOD))
        for word in words
        for rest in CLOSING
    ]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    (folder / "held.jsonl").write_text("\n".join(lines[:24]))
    sources = {
        "train": str(folder / "rows.jsonl"),
        "select": str(folder / "held.jsonl"),
        "test": str(folder / "held.jsonl"),
    }
    task = Task.model_validate({"name": "films", "kind": "classification", "data": sources, "max_length": 32})
    work = folder / "data"
    work.mkdir()
    prepare_splits(task, 0, work)
    return work


RECOVER = {"epochs": 1, "batch_size": 16, "learning_rate": 1e-3, "precision": "fp32"}


def recover(pruned, teacher, data, settings, seed, work):
    return distill(teacher, Student(source=str(pruned)), data, settings, seed, work, step="recover", recovers=True)


def settings(**changes):
    return Prune.model_validate({"heads": 0.25, "ffn": 0.5, "batches": 4, "recover": RECOVER} | changes)


def test_cut_writes_a_smaller_model_and_what_it_kept(data, tiny_folder, tmp_path):
    student, notes = tiny_folder("bert"), io.StringIO()
    (tmp_path / "left-by-a-killed-attempt.bin").write_bytes(b"")
    assert cut(student, student, data, settings(), 0, tmp_path, console=Console("human", notes, notes)) is None
    info = read_info(tmp_path)
    heads, ffn = (", ".join(map(str, counts)) for counts in (info.shape.heads, info.shape.ffn))
    assert f"cut: by layer, {heads} heads; FFN {ffn}\n" in notes.getvalue()
    assert info.step == "cut"
    assert sum(info.shape.heads) == 6
    assert sum(info.shape.ffn) == 64
    assert all(width % 16 == 0 for width in info.shape.ffn)
    assert set(digests(tmp_path)) >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert not (tmp_path / "left-by-a-killed-attempt.bin").exists()
    assert layer_shapes(load(tmp_path)) == list(zip(info.shape.heads, info.shape.ffn, strict=True))
    assert info.pruning.criterion == "taylor"
    for layer, heads, ffn in zip(info.pruning.layers, info.shape.heads, info.shape.ffn, strict=True):
        assert (len(layer.heads), len(layer.heads_importance)) == (heads, heads)
        assert (len(layer.ffn), len(layer.ffn_importance)) == (ffn, ffn)
        assert len(layer.heads) + len(layer.removed_heads_importance) == 4
        assert len(layer.ffn) + len(layer.removed_ffn_importance) == 64
        assert all(value >= 0 for value in layer.heads_importance + layer.ffn_importance)


def test_kept_indices_are_those_of_the_parents_weights(data, tiny_folder, tmp_path):
    student = tiny_folder("bert")
    cut(student, student, data, settings(), 0, tmp_path)
    before, after = load(student), load(tmp_path)
    path = family_of(before).ffn_out
    for old, new, layer in zip(layers_of(before), layers_of(after), read_info(tmp_path).pruning.layers, strict=True):
        assert torch.equal(part(new, path).weight, part(old, path).weight[:, list(layer.ffn)])


def test_second_cut_records_what_it_kept_of_the_uncut_model(data, tiny_folder, tmp_path):
    student, first, second = tiny_folder("bert"), tmp_path / "one", tmp_path / "two"
    stages = settings(cuts=2).stages()
    cut(student, student, data, stages[0], 0, first)
    cut(first, student, data, stages[1], 0, second)
    info = read_info(second)
    assert sum(info.shape.heads) == 6
    assert sum(info.shape.ffn) == 64
    before, after = load(student), load(second)
    path = family_of(before).ffn_out
    for old, new, layer in zip(layers_of(before), layers_of(after), info.pruning.layers, strict=True):
        assert torch.equal(part(new, path).weight, part(old, path).weight[:, list(layer.ffn)])
        assert len(layer.heads) + len(layer.removed_heads_importance) == 4


@pytest.mark.slow
def test_recovery_counts_the_layers_before_its_own_cut(data, tiny_model, tiny_folder, tmp_path):
    student, given = tiny_folder(tiny_model("bert", num_hidden_layers=4)), tmp_path / "phone.json"
    folders = [student, tmp_path / "first", tmp_path / "second"]
    times = {"attention": {1: 0.0, 4: 0.1}, "ffn": {16: 0.0, 64: 0.1}, "layer": 0.9}
    goal = {"heads": 0.0, "ffn": 0.0, "to": {"speedup": 1.35}, "latency_table": str(given)}
    for before, after, layers in zip(folders, folders[1:], (4, 3), strict=False):
        given.write_text(table(layers=layers, fixed=0.9 * layers - 0.6, **times).model_dump_json())
        cut(before, student, data, settings(**goal), 0, after)
    first, second = (read_info(folder).pruning for folder in folders[1:])
    assert (sum(first.left), len(first.left), first.dropped_before) == (3, 4, None)
    assert (sum(second.left), len(second.left), len(second.layers)) == (2, 3, 4)
    pairs = [[0, 0], [1, 1], [2, 3]]
    following = settings(recover=RECOVER | {"hidden_state": 1.0, "layer_map": pairs}).recover
    recover(folders[2], student, data, following, 0, tmp_path / "recovered")
    followed = [theirs for (_, theirs), left in zip(pairs, second.left, strict=True) if left]
    assert read_info(tmp_path / "recovered").layer_map.pairs == tuple(enumerate(followed))


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_every_criterion_cuts(criterion, family, data, tiny_model, tiny_tokenizer, tiny_task):
    rows, model = list(load_prepared(data).rows("train")), tiny_model(family, pad_token_id=0)
    options = settings(criterion=criterion, rescale=True)
    tokens = fast_tokenizer(model.config, tiny_tokenizer)
    pruned, pruning, _ = cut_from_model(model, rows, tiny_task, tokens, options, 0)
    assert pruning.criterion == criterion
    assert sum(ffn for _, ffn in layer_shapes(pruned)) == 64
    kept = [list(layer.ffn) for layer in pruning.layers]
    path = family_of(model).ffn_out
    weights = [part(layer, path).weight for layer in layers_of(pruned)]
    old = [part(layer, path).weight[:, each] for layer, each in zip(layers_of(model), kept, strict=True)]
    assert not any(torch.equal(*pair) for pair in zip(weights, old, strict=True) if len(pair[0][0]) < 64)


def test_goal_weighs_heads_against_neurons(data, tiny_model, tiny_tokenizer, tiny_task):
    model, rows = tiny_model("bert"), list(load_prepared(data).rows("train"))
    options = Prune(to={"parameters": 0.6}, criterion="kwon", batches=4, recover=False)
    tokens = fast_tokenizer(model.config, tiny_tokenizer)
    pruned, pruning, _ = cut_from_model(model, rows, tiny_task, tokens, options, 0)
    share = layer_parameters(shape_of(pruned)) / layer_parameters(shape_of(model))
    assert share == pytest.approx(0.6, abs=0.04)
    assert all(layer.heads and layer.ffn for layer in pruning.layers)


def test_sample_that_is_too_small_is_refused(data, tiny_model, tiny_tokenizer, tiny_task):
    model, rows = tiny_model("bert"), list(load_prepared(data).rows("train"))[:7]
    with pytest.raises(UsageError, match=r"at least 8 rows of train .* there are 7"):
        cut_from_model(model, rows, tiny_task, fast_tokenizer(model.config, tiny_tokenizer), settings(), 0)


def test_recovered_model_keeps_pruning_info_and_records_its_training(data, tiny_folder, tmp_path):
    student, pruned, work = tiny_folder("bert"), tmp_path / "cut", tmp_path / "recover"
    cut(student, student, data, settings(), 0, pruned)
    recovered = recover(pruned, student, data, settings().recover, 0, work)
    info = read_info(work)
    assert info.step == "recover"
    assert recovered.result.rows > 0
    assert info.shape == read_info(pruned).shape
    assert info.pruning == read_info(pruned).pruning
    assert info.training.updates == recovered.result.updates > 0
    assert [entry.update for entry in info.training.history] == [entry.update for entry in recovered.result.history]
    assert not [path for path in work.iterdir() if path.is_dir()]
    assert (pruned / "model.safetensors").is_file()


def test_cut_without_teacher_is_scored_by_labels_alone(data, tiny_folder, tmp_path):
    cut(tiny_folder("distilbert"), None, data, settings(), 0, tmp_path)
    assert read_info(tmp_path).shape.family == "distilbert"
    assert read_info(tmp_path).training is None


def test_same_seed_gives_same_cut(data, tiny_folder, tmp_path):
    student = tiny_folder("bert")
    for name in ("one", "two"):
        cut(student, student, data, settings(), 3, tmp_path / name)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_training_identity_includes_the_start_weights(tiny_model):
    model = tiny_model("bert")
    examples = SimpleNamespace(digest=lambda: "rows")
    objective = SimpleNamespace(modules=tuple, identity=lambda: "objective")

    def identity():
        return training_identity(model, objective, examples, settings().recover, 0)

    before = identity()
    assert identity() == before
    model.classifier.bias.data[0] += 1e-3
    assert identity() != before


def test_prune_from_model_refuses_a_vocabulary(tiny_model, tiny_tokenizer, tiny_task):
    with pytest.raises(UsageError, match="not word pieces"):
        prune_from_model(tiny_model("bert"), tiny_tokenizer, [], [], tiny_task, settings(vocabulary="seen"))


@pytest.mark.slow
@pytest.mark.gpu
def test_prune_from_model_leaves_the_given_model_unchanged(data, tiny_model, tiny_tokenizer, tiny_task):
    roles = load_prepared(data)
    rows, held = list(roles.rows("train")), list(roles.rows("select"))
    model = tiny_model("roberta", pad_token_id=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pruned = prune_from_model(model, tiny_tokenizer, rows, held, tiny_task, settings())
    assert layer_shapes(model) == [(4, 64), (4, 64)]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert sum(heads for heads, _ in layer_shapes(pruned)) == 6
    twice = prune_from_model(model, tiny_tokenizer, rows, held, tiny_task, settings(cuts=2))
    assert sum(heads for heads, _ in layer_shapes(twice)) == 6
    cut_only = prune_from_model(model, tiny_tokenizer, rows, held, tiny_task, settings(recover=False))
    assert layer_shapes(cut_only) == layer_shapes(pruned)


@pytest.mark.slow
def test_prune_from_model_continues_after_a_kill_in_its_second_recovery(
    data, tiny_model, tiny_tokenizer, tiny_task, tmp_path, monkeypatch
):
    rows, ended = list(load_prepared(data).rows("train")), []

    def prune(work):
        recovery = RECOVER | {"checkpoint": {"minutes": None, "steps": 3}}
        options = settings(cuts=2, recover=recovery)
        return prune_from_model(tiny_model("bert"), tiny_tokenizer, rows, rows[:8], tiny_task, options, work=work)

    def end_or_kill(folder):
        ended.append(folder)
        if len(ended) == 2:
            raise KeyboardInterrupt
        delete_work_files(folder)

    monkeypatch.setattr(seed_restarts, "delete_work_files", end_or_kill)
    with pytest.raises(KeyboardInterrupt):
        prune(tmp_path / "killed")
    assert any((tmp_path / "killed" / "recover-2").rglob("*.safetensors"))
    weights = prune(tmp_path / "killed").state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in prune(None).state_dict().items())


def test_family_that_cannot_be_pruned_is_refused(data, tiny_folder, tmp_path):
    with pytest.raises(ModelError, match="modernbert cannot be pruned"):
        cut(tiny_folder("modernbert"), None, data, settings(), 0, tmp_path)
