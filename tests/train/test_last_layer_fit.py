"""The linear probe: what it fits, what it costs to resume, and what fine-tuning starts from."""

import io
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, linear

from compress.console import Console
from compress.model_folder.model_info import read_info
from compress.models.load_save import load, load_model, output_layer
from compress.recipe.training_schema import Finetune
from compress.train import last_layer_fit as probes
from compress.train.core import last_layer_effort, training_data
from compress.train.core.last_layer_effort import QUICK, THOROUGH, Search
from compress.train.finetune import finetune
from compress.train.last_layer_fit import Limit, fit_last_layer, stored_last_layer
from compress.train.objective import TaskObjective

METRICS = {"classification": "accuracy", "multi_label": "micro_f1", "regression": "spearman"}
LOSSES = {
    "classification": torch.nn.functional.cross_entropy,
    "multi_label": lambda logits, labels: torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.double()),
    "regression": lambda logits, labels: (logits.squeeze(1) - labels).square().mean(),
}
SETTINGS = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-9, "precision": "fp32"}


@pytest.fixture
def encoder(tiny_model, tiny_folder):
    return tiny_folder(tiny_model("bert", head="Model", initializer_range=0.1), task=None)


@pytest.fixture
def model(encoder, tiny_task):
    return load_model(encoder, tiny_task, pooling="mean")


@pytest.fixture
def task_and_rows(tiny_task, rows):
    """The task of a kind, and rows with labels of that kind: both follow from the words."""

    def make(kind):
        labels = {
            "classification": lambda number: number % 2,
            "multi_label": lambda number: [float(number % 2), float(number % 3 == 0)],
            "regression": lambda number: 2.0 * (number % 2) - float(number % 3 == 0),
        }[kind]
        changes = {"kind": kind, "metric": METRICS[kind], "labels": () if kind == "regression" else tiny_task.labels}
        return tiny_task.model_copy(update=changes), [
            row | {"label": labels(number)} for number, row in enumerate(rows(50))
        ]

    return make


def features_and_labels(model, examples):
    """What the last layer reads of every row, in order, and the labels."""
    seen, labels = [], []
    hook = output_layer(model).register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach()))
    with torch.no_grad():
        for index in range(len(examples.lengths)):
            batch = {name: torch.from_numpy(array) for name, array in examples.batch(np.array([index])).items()}
            model.train(False)(**{name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")})
            labels.append(batch["labels"])
    hook.remove()
    return torch.cat(seen).double(), torch.cat(labels)


@pytest.mark.parametrize("kind", LOSSES)
def test_it_is_the_regularised_minimum(kind, encoder, task_and_rows, tiny_tokenizer, monkeypatch):
    task, labelled = task_and_rows(kind)
    model = load_model(encoder, task, pooling="mean")
    tokens = training_data.fast_tokenizer(model.config, tiny_tokenizer)
    examples = training_data.from_rows(labelled, [], task, tokens, Console("quiet")).train
    search = Search(strengths=(0.1,), iterations=200, last_iterations=200)
    monkeypatch.setattr(last_layer_effort, "THOROUGH", search)
    probe = fit_last_layer(model, examples, TaskObjective(task).loss_of, 0)
    features, labels = features_and_labels(model, examples)
    scale = (features - features.mean(dim=0)).square().mean().sqrt()
    weight, bias = probe.weight.double().requires_grad_(), probe.bias.double().requires_grad_()
    loss = LOSSES[kind](linear(features, weight, bias), labels)
    (loss + 0.1 * (weight * scale).square().sum()).backward()
    assert weight.grad.abs().max() / scale < 1e-2
    assert bias.grad.abs().max() < 1e-2
    assert (probe.info.rows, len(probe.bias)) == (50, 1 if kind == "regression" else 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["multi_label", "regression"])
def test_several_classes_and_numbers_are_fitted(kind, encoder, task_and_rows, tiny_tokenizer):
    task, labelled = task_and_rows(kind)
    model = load_model(encoder, task, pooling="mean")
    tokens = training_data.fast_tokenizer(model.config, tiny_tokenizer)
    data = training_data.from_rows(labelled, labelled, task, tokens, Console("quiet"))
    fit_last_layer(model, data.train, TaskObjective(task).loss_of, 0).apply_to(model)
    assert data.evaluate(model) > 0.95  # micro F1 and Spearman's correlation


def test_it_is_better_than_a_random_head_and_the_same_every_time(model, material):
    loss = TaskObjective(material.task).loss_of
    before = material.evaluate(model)
    probe = fit_last_layer(model, material.train, loss, 0)
    again = fit_last_layer(model, material.train, loss, 0)
    assert torch.equal(probe.weight, again.weight)
    assert torch.equal(probe.bias, again.bias)
    probe.apply_to(model)
    assert material.evaluate(model) == 1.0 > before
    assert not model.training


@pytest.mark.slow
def test_noise_is_regularised_and_signal_is_not(model, material, tiny_task, tiny_tokenizer, rows):
    tokens = training_data.fast_tokenizer(model.config, tiny_tokenizer)
    drawn = np.random.default_rng(0).permutation(50) % 2
    shuffled = [row | {"label": int(label)} for row, label in zip(rows(50), drawn, strict=True)]
    noise = training_data.from_rows(shuffled, [], tiny_task, tokens, Console("quiet"))
    loss = TaskObjective(tiny_task).loss_of
    strengths = [fit_last_layer(model, examples, loss, 0).info.strength for examples in (noise.train, material.train)]
    assert strengths[0] > strengths[1]
    assert fit_last_layer(model, noise.train, loss, 0).info.loss == pytest.approx(np.log(2), abs=0.01)


@pytest.mark.slow
def test_the_penalty_of_many_classes_is_chosen_as_of_two():
    """Under a strong penalty weights are tiny, and classes are their frequency: neither may look like the best."""
    torch.manual_seed(0)
    classes, width = 300, 8
    labels = torch.arange(4 * classes) % classes
    features = torch.randn(classes, width)[labels] + 0.1 * torch.randn(4 * classes, width)
    parts = torch.randperm(4 * classes).split(150)
    batches = [probes.Encoded(features[part], {"labels": labels[part]}, len(part)) for part in parts]
    progress = SimpleNamespace(advance=lambda *_, **__: None)
    fit = probes._Fit(("logits",), lambda outputs, batch: cross_entropy(outputs["logits"], batch["labels"]), progress)
    start = torch.zeros(classes, width), torch.zeros(classes)
    assert probes._cross_validate(fit, batches, torch.Size((classes, width)), last_layer_effort.THOROUGH).strength < 0.1
    weight, bias = (tensor.requires_grad_() for tensor in fit(batches, 10.0, start, 100))
    (fit.loss_of(weight, bias, batches) + 10.0 * weight.square().sum()).backward()
    assert weight.grad.abs().max() < 1e-6


def test_features_that_hardly_differ_get_no_huge_weights():
    """A random encoder gives nearly the same features to every row; with weights of thousands training diverges."""
    features = 1.0 + 1e-4 * torch.randn(40, 8)
    center, scale = probes._center_and_scale([probes.Encoded(features, {}, 40)])
    assert torch.allclose(center, torch.ones(8), atol=1e-3)
    assert scale == pytest.approx(probes.LEAST_SPREAD, rel=0.01)


def test_only_a_sample_of_large_sets_is_encoded(model, material):
    def rows(limit):
        return fit_last_layer(model, material.train, TaskObjective(material.task).loss_of, 0, limit).info.rows

    assert 20 <= rows(Limit(rows=20, values=probes.START.values)) < 26
    assert rows(Limit(rows=20, values=32)) == 4
    assert rows(probes.WHOLE) == 50


@pytest.mark.slow
def test_a_stored_probe_is_read_unless_it_is_anothers(model, material, tmp_path, monkeypatch):
    loss, path = TaskObjective(material.task).loss_of, tmp_path / "training" / "probe.safetensors"
    first = stored_last_layer(model, material.train, loss, 0, path)
    with monkeypatch.context() as patched:
        patched.setattr(probes, "fit_last_layer", None)
        again = stored_last_layer(model, material.train, loss, 0, path)
    assert torch.equal(first.weight, again.weight)
    assert again.info == first.info
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.mul_(2)
    assert not torch.equal(stored_last_layer(model, material.train, loss, 0, path).weight, first.weight)


def test_models_without_a_linear_head_have_none(tiny_model, material, tmp_path):
    model = tiny_model("bert", head="ForSentenceEmbedding")
    assert stored_last_layer(model, material.train, TaskObjective(material.task).loss_of, 0, tmp_path / "none") is None


@pytest.mark.slow
def test_fine_tuning_starts_from_the_better_of_both_poolings(encoder, prepared, tmp_path):
    output = io.StringIO()
    made = finetune(str(encoder), prepared, Finetune(**SETTINGS), 0, tmp_path, console=Console("human", err=output))
    info = read_info(tmp_path)
    assert info.probe.rows == 50
    assert f"pooling {info.probe.pooling}, by the cross-validated loss of its probe (mean " in output.getvalue()
    assert f"starts from a probe ({info.probe.pooling}) of 50 rows" in output.getvalue()
    assert load(tmp_path).config.model_type == ("compress-bert" if info.probe.pooling == "mean" else "bert")
    assert made.start.shape == (10, 2)
    assert (made.start.argmax(axis=1) == np.arange(10) % 2).all()
    assert not (tmp_path / "training").exists()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_named_pooling_is_used(pooling, encoder, prepared, tmp_path):
    finetune(str(encoder), prepared, Finetune(**SETTINGS, pooling=pooling), 0, tmp_path)
    assert read_info(tmp_path).probe.pooling == pooling
    assert json.loads((tmp_path / "config.json").read_text()).get("head_pooling") == {"mean": "mean"}.get(pooling)


def test_a_random_head_is_not_probed(encoder, prepared, tmp_path):
    made = finetune(str(encoder), prepared, Finetune(**SETTINGS, init="random"), 0, tmp_path)
    assert (made.start, read_info(tmp_path).probe) == (None, None)
    assert load(tmp_path).config.model_type == "bert"


def test_a_trained_head_that_is_trained_further_is_not_probed(tiny_folder, prepared, tmp_path, same_weights):
    source = tiny_folder("bert")
    made = finetune(str(source), prepared, Finetune(**SETTINGS, reuse=False), 0, tmp_path)
    assert made.start is None
    torch.testing.assert_close(load(tmp_path).classifier.weight, load(source).classifier.weight, atol=1e-6, rtol=0)


def quick_limit(model, examples, share=1.0):
    """A limit that allows this share of the quick search on all rows."""
    work, _ = probes._work(model, output_layer(model), examples, probes.START)
    return replace(probes.START, operations=share * work.of(QUICK))


def counted(model, material, limit, monkeypatch):
    """The probe within a limit, and the rows of all evaluations of its loss, gradients included."""
    rows, loss_of = [], probes._Fit.loss_of

    def counting(fit, weight, bias, part):
        rows.append(sum(batch.rows for batch in part) if torch.is_grad_enabled() else 0)
        return loss_of(fit, weight, bias, part)

    with monkeypatch.context() as patched:
        patched.setattr(probes._Fit, "loss_of", counting)
        return fit_last_layer(model, material.train, TaskObjective(material.task).loss_of, 0, limit), sum(rows)


def test_the_work_is_bounded_and_counted(model, material, monkeypatch):
    work, rows = probes._work(model, output_layer(model), material.train, probes.START)
    thorough, evaluated = counted(model, material, probes.START, monkeypatch)
    assert thorough.info.operations == pytest.approx(work.encoding + evaluated / rows * work.evaluation)
    limit = quick_limit(model, material.train)
    quick, fewer = counted(model, material, limit, monkeypatch)
    assert fewer < evaluated / 3
    assert quick.info.rows == 50
    assert quick.info.operations <= limit.operations
    part, _ = counted(model, material, quick_limit(model, material.train, 0.5), monkeypatch)
    assert part.info.rows < 50
    for probe in (quick, part):
        probe.apply_to(model)
        assert material.evaluate(model) == 1.0


@pytest.mark.slow
def test_a_limit_that_suffices_changes_nothing(model, material, monkeypatch):
    probe, _ = counted(model, material, probes.START, monkeypatch)
    work, _ = probes._work(model, output_layer(model), material.train, probes.START)
    again, _ = counted(model, material, replace(probes.START, operations=work.of(THOROUGH)), monkeypatch)
    assert torch.equal(again.weight, probe.weight)
    assert again.info == probe.info


def test_progress_is_shown(model, material, monkeypatch):
    monkeypatch.setattr("compress.console.LOG_INTERVAL", 0.0)
    output = io.StringIO()
    loss = TaskObjective(material.task).loss_of
    fit_last_layer(model, material.train, loss, 0, console=Console("human", err=output))
    lines = output.getvalue().splitlines()
    assert any(line.startswith("last layer: encode: 50/50 rows") for line in lines)
    assert any(line.startswith("last layer: fit: ") and ", strength 0.1, loss " in line for line in lines)
