import io
import json

import pytest
import torch

from compress.console import Console
from compress.data.splits.prepare_splits import prepare_splits
from compress.data.tokenizer import read_json
from compress.errors import ModelError, UsageError
from compress.families import FAMILIES
from compress.model_folder.model_info import read_info
from compress.models.load_save import load, load_model
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.recipe.task_schema import Task
from compress.recipe.training_schema import Finetune
from compress.train.core.auto_settings import RULES
from compress.train.core.training_data import fast_tokenizer, from_rows
from compress.train.distill import distill
from compress.train.finetune import finetune, finetune_from_model

PAIRS = [("good", 1.0), ("bad", 0.0), ("fine", 0.8), ("dull", 0.3)] * 4
SETTINGS = {"epochs": 4, "batch_size": 8, "learning_rate": 3e-3, "precision": "fp32"}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_learns(name, tiny_model, tiny_folder, prepared, tmp_path):
    source = tiny_folder(tiny_model(name, head="Model", initializer_range=0.05), task=None)
    made = finetune(str(source), prepared, Finetune(**SETTINGS), 0, tmp_path)
    assert made.result.history[-1].losses["task"] < made.result.history[1].losses["task"]
    assert made.result.rows == 200
    info = read_info(tmp_path)
    assert (info.step, info.shape.family, info.task.labels) == ("finetune", name, ("bad", "good"))
    assert load(tmp_path).config.id2label == {0: "bad", 1: "good"}
    names = {path.name for path in tmp_path.iterdir()}
    expected = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "compress.json"}
    assert names - {"README.md"} == expected | {"sentence_bert_config.json"}
    assert ("README.md" in names) == read_json(tmp_path / "config.json")["model_type"].startswith("compress-")


def test_teacher_with_fitting_head_is_used_unchanged(tiny_model, tiny_folder, prepared, tmp_path, same_weights):
    model = tiny_model("bert")
    output = io.StringIO()
    source = str(tiny_folder(model))
    made = finetune(source, prepared, Finetune(), 0, tmp_path, console=Console("human", err=output))
    assert made.result is None
    assert made.result is None
    assert same_weights(load(tmp_path), model)
    assert "used unchanged" in output.getvalue()


def test_reuse_can_be_refused(tiny_model, tiny_folder, prepared, tmp_path, same_weights):
    model = tiny_model("bert")
    made = finetune(str(tiny_folder(model)), prepared, Finetune(**SETTINGS, reuse=False), 0, tmp_path)
    assert made.result.updates == 28
    assert not same_weights(load(tmp_path), model)


def test_a_pooling_is_refused_where_there_is_no_new_head(tiny_model, tiny_folder, prepared, tmp_path):
    source = str(tiny_folder(tiny_model("bert", num_hidden_layers=4)))
    for name, value in (("pooling", "cls"), ("init", "random")):
        settings = Finetune(**SETTINGS, reuse=False, **{name: value})
        with pytest.raises(ModelError, match=rf"finetune.{name}: {value} is for a new head, and .* keeps") as error:
            finetune(source, prepared, settings, 0, tmp_path)
        assert f"leave {name} out" in error.value.hint
    finetune(source, prepared, Finetune(reuse=False, features="last4", pooling="mean"), 0, tmp_path)


def test_an_embedding_competes_with_the_encoder_that_it_starts_from(tiny_model, tiny_folder, tmp_path):
    lines = [json.dumps({"sentence1": "a good film", "sentence2": f"a {word} plot", "score": s}) for word, s in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    files = dict.fromkeys(("train", "select", "test"), str(tmp_path / "pairs.jsonl"))
    text = {"text": ("sentence1", "sentence2"), "label": "score", "range": (0.0, 1.0), "max_length": 32}
    (tmp_path / "data").mkdir()
    prepare_splits(Task(kind="similarity", data=files, **text), 0, tmp_path / "data")
    source = str(tiny_folder(tiny_model("bert", head="Model"), task=None))
    made = finetune(source, tmp_path / "data", Finetune(**{**SETTINGS, "epochs": 1}), 0, tmp_path / "teacher")
    assert [evaluation.update for evaluation in made.result.history] == [0, made.result.updates]


def test_no_finetuning_needs_a_head(tiny_model, tiny_folder, prepared, tmp_path):
    finetune(str(tiny_folder("bert")), prepared, False, 0, tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    other = tiny_folder(tiny_model("bert", labels=("no", "yes")), task=None)
    with pytest.raises(ModelError, match=r"has no head for classification .labels: bad, good"):
        finetune(str(other), prepared, False, 0, tmp_path)


@pytest.mark.slow
def test_restarts_keep_the_best_seed(tiny_model, tiny_folder, prepared, tmp_path, same_weights):
    source = tiny_folder(tiny_model("bert", head="Model", initializer_range=0.05), task=None)
    output = io.StringIO()
    settings = Finetune(**{**SETTINGS, "epochs": 1}, restarts=3)
    made = finetune(str(source), prepared, settings, 4, tmp_path / "all", console=Console("human", err=output))
    alone = [
        finetune(str(source), prepared, Finetune(**{**SETTINGS, "epochs": 1}), seed, tmp_path / str(seed))
        for seed in (4, 5, 6)
    ]
    best = max(one.result.score for one in alone)
    assert made.result.score == best
    assert f"seed {made.result.seed} is the best of 3" in output.getvalue()
    assert same_weights(load(tmp_path / "all"), load(tmp_path / str(made.result.seed)))
    assert not (tmp_path / "all" / "training").exists()


@pytest.mark.slow
def test_seeds_are_restarts_whose_scores_on_test_are_reported(
    tiny_model, tiny_folder, prepared, tmp_path, same_weights
):
    source = str(tiny_folder(tiny_model("bert", head="Model", initializer_range=0.05), task=None))
    settings = {**SETTINGS, "epochs": 1}
    restarts = finetune(source, prepared, Finetune(**settings, restarts=3), 4, tmp_path / "restarts")
    seeds = finetune(source, prepared, Finetune(**settings, seeds=3), 4, tmp_path / "seeds")
    assert same_weights(load(tmp_path / "restarts"), load(tmp_path / "seeds"))
    trials = read_info(tmp_path / "seeds").training.trials
    assert [trial.seed for trial in trials] == [4, 5, 6]
    assert [trial.score for trial in trials] == [trial.score for trial in restarts.result.trials]
    assert all(0 <= trial.test <= 1 for trial in trials)
    assert {trial.test for trial in restarts.result.trials} == {None}
    assert seeds.result.all_seconds > seeds.result.seconds


@pytest.mark.slow
def test_every_point_of_a_grid_is_trained_and_the_best_is_used(
    tiny_model, tiny_folder, prepared, tmp_path, same_weights
):
    source = str(tiny_folder(tiny_model("bert", head="Model", initializer_range=0.05), task=None))
    grid = {"batch_size": [8, 16], "learning_rate": [1e-5, 3e-3]}
    made = finetune(source, prepared, Finetune(epochs=1, grid=grid, precision="fp32"), 4, tmp_path / "all")
    trials = made.result.trials
    assert [trial.settings for trial in trials] == [
        {"batch_size": size, "learning_rate": rate} for size in (8, 16) for rate in (1e-5, 3e-3)
    ]
    best = max(trials, key=lambda trial: trial.score)
    size, rate = int(best.settings["batch_size"]), best.settings["learning_rate"]
    alone = Finetune(epochs=1, precision="fp32", batch_size=size, learning_rate=rate)
    finetune(source, prepared, alone, 4, tmp_path / "alone")
    assert made.result.score == best.score
    assert same_weights(load(tmp_path / "all"), load(tmp_path / "alone"))
    assert read_info(tmp_path / "all").training.trials == trials


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_frozen_encoder_keeps_its_weights_and_its_head_fits(name, tiny_model, tiny_folder, prepared, tmp_path):
    model = tiny_model(name, head="Model", initializer_range=0.05)
    source = str(tiny_folder(model, task=None))
    made = finetune(source, prepared, Finetune(method="frozen", pooling="mean"), 0, tmp_path)
    assert (made.result.updates, made.result.rows, made.start) == (0, 50, None)
    assert made.result.score >= 0.9
    trained = load(tmp_path)
    before, after = model.state_dict(), trained.base_model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in after)
    assert read_info(tmp_path).probe.rows == 50


def test_a_head_that_fits_is_fitted_again_to_its_frozen_encoder(tiny_model, tiny_folder, prepared, tmp_path):
    model = tiny_model("bert")
    made = finetune(str(tiny_folder(model)), prepared, Finetune(method="frozen", reuse=False), 0, tmp_path)
    trained = load(tmp_path)
    assert torch.equal(trained.bert.pooler.dense.weight, model.bert.pooler.dense.weight)
    assert not torch.equal(trained.classifier.weight, model.classifier.weight)
    assert made.result.score >= 0.9


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_a_head_on_the_last_four_layers_is_a_teacher(name, tiny_model, tiny_folder, prepared, tmp_path):
    model = tiny_model(name, head="Model", initializer_range=0.05, num_hidden_layers=4)
    source = str(tiny_folder(model, task=None))
    made = finetune(source, prepared, Finetune(features="last4"), 0, tmp_path / "teacher")
    assert made.result.score >= 0.9
    info, trained = read_info(tmp_path / "teacher"), load(tmp_path / "teacher")
    assert (info.probe.features, info.probe.pooling) == ("last4", "mean")
    before, after = model.state_dict(), trained.base_model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in after)
    settings = Distill(**SETTINGS, losses={"soft_label": 1.0, "hidden_state": 1.0})
    learned = distill(tmp_path / "teacher", Student(layers=2), prepared, settings, 0, tmp_path / "student")
    assert learned.result.score >= 0.9
    assert getattr(load(tmp_path / "student").config, "head_features", None) is None


def test_a_model_in_memory_has_no_frozen_method(tiny_model, tiny_tokenizer, tiny_task, rows):
    with pytest.raises(UsageError, match="a frozen encoder is a checkpoint that gets a head"):
        finetune_from_model(tiny_model("bert"), tiny_tokenizer, rows(8), [], tiny_task, Finetune(method="frozen"))


def test_restarts_start_from_different_heads(tiny_model, tiny_folder, tiny_task):
    source = tiny_folder(tiny_model("bert", head="Model"), task=None)
    heads = [load_model(source, tiny_task, seed=seed).classifier.weight for seed in (4, 5)]
    assert not torch.equal(*heads)


def test_in_memory(tiny_model, tiny_tokenizer, tiny_task, rows, tmp_path):
    model = tiny_model("bert", initializer_range=0.1)
    trained = finetune_from_model(
        model, tiny_tokenizer, rows(50), rows(20), tiny_task, Finetune(**SETTINGS), work=tmp_path / "work"
    )
    assert trained is model
    assert not (tmp_path / "work" / "training").exists()


def test_retrieval_in_memory_searches_documents(tiny_model, tiny_tokenizer, tiny_task):
    task = tiny_task.model_copy(update={"kind": "retrieval", "text": ("query",), "labels": (), "metric": "mrr"})
    texts = [f"{one} {two}" for one in ("good", "bad", "dull") for two in ("film", "plot", "the film", "it was")]
    train = [{"query": text, "positives": [f"very {text}"], "negatives": []} for text in texts]
    select = [{"query": text, "relevant": [number]} for number, text in enumerate(texts)]
    documents = [{"document": f"very {text}"} for text in texts]
    model, settings, output = tiny_model("bert", head="ForSentenceEmbedding"), Finetune(**SETTINGS), io.StringIO()
    searching = {"documents": documents, "console": Console("human", err=output)}
    finetune_from_model(model, tiny_tokenizer, train, select, task, settings, **searching)
    assert "on select after update" in output.getvalue()


def test_in_memory_restarts_begin_at_the_same_weights(tiny_model, tiny_tokenizer, tiny_task, rows):
    settings = Finetune(**{**SETTINGS, "epochs": 1}, restarts=2)
    first, second = tiny_model("bert"), tiny_model("bert")
    for model in (first, second):
        finetune_from_model(model, tiny_tokenizer, rows(50), rows(20), tiny_task, settings)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_without_select_rows_the_last_weights_are_kept(tiny_model, tiny_tokenizer, tiny_task, rows):
    model = finetune_from_model(tiny_model("bert"), tiny_tokenizer, rows(20), [], tiny_task, Finetune(**SETTINGS))
    assert not model.training


def test_multi_label_and_regression_learn(tiny_model, tiny_tokenizer, tiny_task, rows):
    several = tiny_task.model_copy(update={"kind": "multi_label", "metric": "micro_f1"})
    marked = [{**row, "label": [float(row["label"] == 0), float(row["label"] == 1)]} for row in rows(50)]
    number = tiny_task.model_copy(update={"kind": "regression", "metric": "pearson", "labels": ()})
    scored = [{**row, "label": float(row["label"])} for row in rows(50)]
    for task, given, problem in ((several, marked, "multi_label_classification"), (number, scored, "regression")):
        model = tiny_model("bert", labels=task.labels or ("score",), initializer_range=0.1)
        tokens = fast_tokenizer(model.config, tiny_tokenizer)
        evaluate = from_rows(given, given, task, tokens, Console("quiet")).evaluate
        before = evaluate(model)
        finetune_from_model(model, tiny_tokenizer, given, given, task, Finetune(**SETTINGS))
        assert evaluate(model) > max(before, 0.8)
        assert model.config.problem_type == problem


def test_a_model_whose_head_does_not_fit_is_refused(tiny_model, tiny_tokenizer, tiny_task, rows):
    with pytest.raises(ModelError, match="the head has 3 outputs, expected 2: bad, good"):
        finetune_from_model(tiny_model("bert", labels=("a", "b", "c")), tiny_tokenizer, rows(8), [], tiny_task)
    with pytest.raises(ModelError, match="BertModel has no head for films"):
        finetune_from_model(tiny_model("bert", head="Model"), tiny_tokenizer, rows(8), [], tiny_task)


def test_settings_left_to_auto_are_recorded_with_their_reasons(tiny_model, tiny_folder, prepared, tmp_path):
    source = tiny_folder(tiny_model("bert", head="Model"), task=None)
    output = io.StringIO()
    settings = Finetune(precision="fp32", max_steps=4)
    made = finetune(str(source), prepared, settings, 0, tmp_path, console=Console("human", err=output))
    chosen = read_info(tmp_path).training.chosen
    rate = RULES["finetune"].rates[0][1]
    assert {key: setting.value for key, setting in chosen.items()} == {
        "learning_rate": rate,
        "batch_size": 16,
        "epochs": 1.0,
    }
    assert chosen["epochs"].reason == "the most allowed, of 10 epochs"
    assert f"learning_rate {rate:g} (hidden size 32), batch_size 16 (50 rows), 10 epochs" in output.getvalue()
    assert made.result.updates == 4


def test_fine_tuning_ends_no_worse_on_select_than_its_probe(tiny_model, tiny_folder, prepared, tmp_path):
    source = tiny_folder(tiny_model("bert", head="Model", initializer_range=0.05), task=None)
    made = finetune(str(source), prepared, Finetune(**{**SETTINGS, "learning_rate": 1.0}), 0, tmp_path)
    assert made.result.history[0].update == 0
    assert made.result.score >= made.result.history[0].score


def test_a_random_head_does_not_compete(tiny_model, tiny_folder, prepared, tmp_path):
    source = tiny_folder(tiny_model("bert", head="Model"), task=None)
    made = finetune(str(source), prepared, Finetune(**{**SETTINGS, "epochs": 1}, init="random"), 0, tmp_path)
    assert [entry.update for entry in made.result.history] == [7]
