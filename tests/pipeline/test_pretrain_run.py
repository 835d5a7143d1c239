"""`compress pretrain` from texts to a model that task recipes start from."""

import json
import shutil

import pytest
import yaml

pytest.importorskip("torch")

from transformers import AutoModelForMaskedLM, AutoTokenizer

from compress.cli import main
from compress.model_sources import identity, local_folder
from compress.pipeline.preflight.resolve import resolve
from compress.pipeline.run import read_recipe
from tests.pretrain.conftest import make_documents, write_text


def write_recipe(folder, corpus, **changes):
    """A recipe of a tiny BERT that is trained for a few steps."""
    recipe = {
        "name": "tiny-bert",
        "text": {"files": [str(corpus)], "held_out": 0.4},
        "shape": {"layers": 1, "hidden": 16, "heads": 2, "ffn": 32},
        "vocabulary": {"size": 150},
        "next_sentence": True,
        "train": {
            "length": 32,
            "short": {"length": 16, "share": 0.5},
            "batch_size": 8,
            "steps": 8,
            "learning_rate": 0.01,
            "evaluations": 2,
            "precision": "fp32",
        },
    }
    path = folder / "pretrain.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in {**recipe, **changes}.items() if value is not None}))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished pretraining."""
    folder = tmp_path_factory.mktemp("pretrain")
    recipe = write_recipe(folder, write_text(folder / "corpus.txt", make_documents()))
    assert main(["pretrain", str(recipe), "--runs", str(folder / "runs"), "--format", "quiet"]) == 0
    return folder / "runs"


def test_the_product_is_a_masked_language_model(runs):
    model = AutoModelForMaskedLM.from_pretrained(runs / "tiny-bert" / "model")
    tokenizer = AutoTokenizer.from_pretrained(runs / "tiny-bert" / "model")
    assert model.config.vocab_size == len(tokenizer) == 150
    assert model(**tokenizer("abc def", return_tensors="pt")).logits.shape[-1] == 150


def test_the_report_has_every_figure(runs):
    report = json.loads((runs / "tiny-bert" / "report.json").read_text())
    held = report["held_out"]
    assert [part["length"] for part in report["training"]] == [16, 32]
    assert [part["steps"] for part in report["training"]] == [4, 4]
    for figure in (held["trained"]["loss"], held["trained"]["pairs"], held["unigram"], held["bigram"]):
        assert figure["low"] < figure["value"] < figure["high"]
    assert held["untouched"] is None
    assert sum(report["corpus"][part]["documents"] for part in ("train", "select", "held_out")) == 40
    rate = report["matrix_rate"]
    assert 0 < rate["operations"] < rate["fastest"]
    assert rate["kernel"] == "torch fp32 linear"
    page = (runs / "tiny-bert" / "report.md").read_text()
    assert "Share of the matrix rate: " in page
    assert "| unigram entropy |" in page


def test_a_second_run_skips_every_step(runs, capsys):
    recipe = runs.parent / "pretrain.yaml"
    assert main(["pretrain", str(recipe), "--runs", str(runs)]) == 0
    assert "nothing changed: reading texts, pretraining, writing the report\n" in capsys.readouterr().err
    assert main(["pretrain", str(recipe), "--runs", str(runs), "--verbose"]) == 0
    assert capsys.readouterr().err.count("nothing changed, skipped") == 5


def test_the_plan_shows_the_steps_and_runs_nothing(runs, tmp_path, capsys):
    recipe = str(runs.parent / "pretrain.yaml")
    assert main(["plan", recipe, "--runs", str(runs), "--format", "json"]) == 0
    assert [step["state"] for step in json.loads(capsys.readouterr().out)["steps"]] == 5 * ["done"]
    assert main(["plan", recipe, "--runs", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert output.out.count("to do") == 5
    assert "8 steps of 8 sequences of up to 32 pieces" in output.err
    assert not list(tmp_path.iterdir())


def test_its_report_is_shown_again_and_listed(runs, capsys):
    assert main(["report", "tiny-bert", "--runs", str(runs)]) == 0
    assert "unigram entropy" in capsys.readouterr().out
    assert main(["ls", "runs", "--runs", str(runs)]) == 0
    assert "pretraining" in capsys.readouterr().out
    assert main(["publish", "tiny-bert", "--runs", str(runs)]) == 1
    assert "is the report of a pretraining" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "label", "plan"])
def test_commands_of_other_recipes_name_the_right_one(command, runs, capsys):
    recipe = str(runs.parent / "pretrain.yaml")
    assert main([command, recipe, *(["--smoke"] if command == "plan" else [])]) == 2
    error = capsys.readouterr().err
    assert "is a pretraining recipe" in error
    assert len(error.splitlines()) <= 2


@pytest.mark.slow
def test_a_task_recipe_starts_from_its_cards(runs, recipe_file):
    cards = [runs / "tiny-bert"]
    overrides = ["teacher=tiny-bert", "student=tiny-bert", "prune=null"]
    recipe = resolve(read_recipe(recipe_file, overrides, cards), cards)
    model = runs / "tiny-bert" / "model"
    assert recipe.student.source == str(model.resolve())
    assert local_folder("tiny-bert", None, cards) == model.resolve()
    assert identity("tiny-bert", None, cards) == identity(str(model), None)
    started = ["run", str(recipe_file), "--cards", str(cards[0]), "--runs", str(runs), "--format", "quiet"]
    sets = [part for each in [*overrides, "task.max_length=32"] for part in ("--set", each)]
    assert main([*started, *sets, "--until", "distill"]) == 0


def test_a_task_of_the_same_name_does_not_replace_the_report(runs, recipe_file, capsys):
    report = (runs / "tiny-bert" / "report.json").read_bytes()
    command = ["run", str(recipe_file), "--runs", str(runs), "--set", "name=tiny-bert"]
    assert main([*command, "--until", "data"]) == 2
    assert "tiny-bert holds the results of a pretraining recipe with the same name" in capsys.readouterr().err
    assert (runs / "tiny-bert" / "report.json").read_bytes() == report


def test_going_on_reports_the_untouched_model(runs, tmp_path, capsys):
    text = write_text(tmp_path / "domain.txt", make_documents(seed=0))
    start = str(runs / "tiny-bert" / "model")
    recipe = write_recipe(tmp_path, text, name="adapted", start=start, shape=None, vocabulary=None)
    assert main(["pretrain", str(recipe), "--runs", str(tmp_path / "runs")]) == 0
    held = json.loads((tmp_path / "runs" / "adapted" / "report.json").read_text())["held_out"]
    assert held["untouched"]["loss"]["value"] != held["trained"]["loss"]["value"]
    assert "untouched" in capsys.readouterr().out


def test_an_encoder_without_a_head_gets_a_new_one(masked_folder, tmp_path, capsys):
    from transformers import AutoModel

    start = tmp_path / "encoder"
    shutil.copytree(masked_folder, start)
    AutoModel.from_pretrained(masked_folder).save_pretrained(start)
    text = write_text(tmp_path / "domain.txt", make_documents())
    changes = {"name": "new-head", "start": str(start), "shape": None, "vocabulary": None, "next_sentence": False}
    train = {"length": 32, "batch_size": 8, "steps": 2, "evaluations": 1}
    recipe = write_recipe(tmp_path, text, train=train, **changes)
    assert main(["pretrain", str(recipe), "--runs", str(tmp_path), "--verbose"]) == 0
    assert "has no head for words: a new one starts with random weights" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary": {"size": 5000}}, "of a vocabulary, and 5,000 are asked for"),
        ({"vocabulary": None}, "a new model needs a vocabulary"),
        ({"start": "minilm-l6", "shape": None}, "so no other can be asked for"),
        ({"trian": {}}, "unknown key; did you mean train?"),
        ({"shape": {"layers": 1, "hidden": 16, "heads": 3}}, "should be a multiple of heads"),
        ({"shape": {"layers": 1, "hidden": 400}}, "is no multiple of 6 heads"),
        ({"shape": {"layers": 1, "hidden": 16, "positions": 20}}, "is longer than shape.positions"),
        ({"vocabulary": {"add": 5, "kind": "bpe"}, "shape": None, "start": "minilm-l6"}, "are of a new vocabulary"),
        ({"distill": {"teacher": "minilm-l6", "method": "relations", "temperature": 3}}, "has no soft labels"),
        (
            {
                "distill": {"teacher": "minilm-l6", "method": "relations"},
                "masked_lm": {"share": 0.3},
                "vocabulary": None,
                "next_sentence": False,
            },
            "masks nothing",
        ),
        ({"text": {"files": ["none.txt"]}}, "there is no file none.txt"),
        ({"train": {"length": 32, "steps": 10_000_000}}, "passes over the texts"),
    ],
)
def test_what_cannot_work_is_one_message(changes, message, tmp_path, capsys):
    recipe = write_recipe(tmp_path, write_text(tmp_path / "corpus.txt", make_documents()), **changes)
    assert main(["pretrain", str(recipe), "--runs", str(tmp_path / "runs")]) in (1, 2)
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_sequences_longer_than_the_checkpoint_are_refused(masked_folder, tmp_path, capsys):
    text = write_text(tmp_path / "corpus.txt", make_documents())
    changes = {"start": str(masked_folder), "shape": None, "vocabulary": None, "next_sentence": False}
    recipe = write_recipe(tmp_path, text, train={"length": 1024}, **changes)
    assert main(["pretrain", str(recipe), "--runs", str(tmp_path / "runs")]) == 2
    assert "has 514 positions" in capsys.readouterr().err
