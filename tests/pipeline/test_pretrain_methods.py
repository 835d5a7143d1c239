"""`compress pretrain` by other methods than masked language modelling, and with pieces added to a vocabulary."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining

from compress.cli import main
from compress.errors import CompressError
from compress.models.tiny import write_tiny_model
from compress.pipeline.commands.pretrain_run import PretrainOptions, run_pretrain
from compress.pretrain.pretrain_report import page, result_table
from compress.train.core.optimizer import ModelAndOptimizer
from compress.train.precision import always_tried

SUBJECTS = ("the cat", "a dog", "the tokenizer", "my neighbour", "the old plant")
VERBS, OBJECTS = ("sees", "likes", "splits", "finds"), ("words", "a tree", "photosynthesis", "the mat", "small fish")
TRAIN = {
    "length": 32,
    "batch_size": 8,
    "steps": 12,
    "evaluations": 2,
    "learning_rate": 1e-3,
    "precision": "fp32",
    "checkpoint": {"steps": 3},
}
STUDENT = {"layers": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Texts, and tiny encoders: `masked` with a word head, `plain` without, `electra` as a checkpoint to go on from."""
    folder, draw = tmp_path_factory.mktemp("texts"), random.Random(0)
    lines = list[str]()
    for _ in range(100):
        lines += [f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(OBJECTS)}." for _ in range(4)]
        lines.append("")
    (folder / "text.txt").write_text("\n".join(lines))
    write_tiny_model(folder / "masked", "bert", masked=True)
    write_tiny_model(folder / "plain", "bert", seed=1)
    teacher = AutoModel.from_pretrained(folder / "plain")
    with torch.no_grad():  # a random encoder attends to all alike, so all relations would be the same
        for parameter in teacher.encoder.parameters():
            parameter.mul_(8.0 if parameter.ndim > 1 else 1.0)
    teacher.save_pretrained(folder / "plain")
    write_tiny_model(folder / "electra", "electra")
    return folder


def sections(folder: Path, method: str) -> dict:
    new = {"vocabulary": {"size": 110}, "shape": {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64}}
    return {
        "replaced_tokens": {**new, "replaced_tokens": 0.25},
        "replaced_tokens_on": {"start": f"{folder}/electra", "replaced_tokens": {"generator": 0.5}},
        "triple": {"shape": STUDENT, "distill": {"teacher": f"{folder}/masked"}},
        "triple_narrow": {"shape": {**STUDENT, "hidden": 16}, "distill": {"teacher": f"{folder}/masked"}},
        "triple_start": {"start": f"{folder}/plain", "distill": {"teacher": f"{folder}/masked"}},
        "relations": {"shape": STUDENT, "distill": {"teacher": f"{folder}/plain", "method": "relations"}},
        "relations_short": {
            "shape": STUDENT,
            "distill": {"teacher": f"{folder}/plain", "method": "relations"},
            "train": {**TRAIN, "short": {"length": 16, "share": 0.5}},
        },
        "relations_start": {
            "start": f"{folder}/masked",
            "distill": {"teacher": f"{folder}/plain", "method": "relations"},
        },
        "add": {"start": f"{folder}/masked", "vocabulary": {"add": 4}},
        "add_plain": {"start": f"{folder}/plain", "vocabulary": {"add": 4}},
    }[method]


def train(folder: Path, runs: Path, **changes):
    text = {"files": [f"{folder}/text.txt"], "held_out": 0.4}
    report = run_pretrain({"name": "made", "text": text, "train": TRAIN, **changes}, options=PretrainOptions(runs=runs))
    return report, runs / "made/model"


def weights(model: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(model.rglob("model.safetensors")))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["replaced_tokens", "replaced_tokens_on"])
def test_replaced_tokens_give_a_plain_electra(folder: Path, tmp_path: Path, method: str) -> None:
    report, model = train(folder, tmp_path, **sections(folder, method))
    assert {score.name for score in report.scores} == {"replaced pieces found", "true pieces taken for replaced"}
    tokenizer = AutoTokenizer.from_pretrained(model)
    for auto, part in ((ElectraForPreTraining, model), (ElectraForMaskedLM, model / "generator")):
        loaded, loading = auto.from_pretrained(part, output_loading_info=True)
        assert not loading["missing_keys"]
        assert not loading["unexpected_keys"]
        assert loaded.config.vocab_size >= len(tokenizer)
    assert (
        AutoModel.from_pretrained(model)(**tokenizer("the cat", return_tensors="pt")).last_hidden_state.isfinite().all()
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["triple", "triple_narrow", "triple_start"])
def test_triple_gives_a_student_with_a_word_head(folder: Path, tmp_path: Path, method: str) -> None:
    report, model = train(folder, tmp_path, **sections(folder, method))
    _, loading = AutoModelForMaskedLM.from_pretrained(model, output_loading_info=True)
    assert not loading["missing_keys"]
    assert report.held_out is not None
    assert report.teacher == f"{folder}/masked"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["relations", "relations_short", "relations_start"])
def test_relations_come_closer_to_the_teachers(folder: Path, tmp_path: Path, method: str) -> None:
    report, model = train(folder, tmp_path, **sections(folder, method))
    assert report.held_out is None
    assert report.scores[0].trained.value < report.scores[0].start.value
    _, loading = AutoModel.from_pretrained(model, output_loading_info=True)
    assert not loading["missing_keys"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["add", "add_plain"])
def test_added_pieces_are_in_tokenizer_embeddings_and_config(folder: Path, tmp_path: Path, method: str) -> None:
    report, model = train(folder, tmp_path, **sections(folder, method))
    assert report.held_out is not None
    assert report.held_out.untouched is not None
    assert result_table(report).rows[0][""] == f"{report.start}, untouched but for its new pieces"
    tokenizer, loaded = AutoTokenizer.from_pretrained(model), AutoModelForMaskedLM.from_pretrained(model)
    sizes = {
        len(tokenizer),
        loaded.config.vocab_size,
        len(loaded.get_input_embeddings().weight),
        len(loaded.get_output_embeddings().weight),
    }
    before = AutoTokenizer.from_pretrained(folder / "plain")
    assert sizes == {len(before) + 4}
    new = [word for word in tokenizer.get_added_vocab() if word not in before.get_vocab()]
    assert len(new) == 4
    assert all(tokenizer.tokenize(f"{word}, {word}x") == [word, ",", *before.tokenize(f"{word}x")] for word in new)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["replaced_tokens_on", "triple", "relations", "add"])
def test_a_trial_of_both_precisions_changes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    cpu = SimpleNamespace(model="a CPU", instructions=("avx512_bf16",), has_bf16=True)
    monkeypatch.setattr("compress.train.precision.describe_cpu", lambda: cpu)
    monkeypatch.setattr("compress.train.precision.BF16_GAIN", 0.0)
    results = {}
    for precision in ("auto", "bf16"):
        settings = {**sections(folder, method), "train": {**TRAIN, "precision": precision}}
        with always_tried():
            results[precision] = train(folder, tmp_path / precision, **settings)
    assert weights(results["auto"][1]) == weights(results["bf16"][1])
    assert "6 of each precision tried" in page(results["auto"][0])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["replaced_tokens_on", "triple", "relations_short", "add"])
def test_an_interrupted_training_ends_as_an_uninterrupted_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    chosen, step, calls = sections(folder, method), ModelAndOptimizer.step, iter(range(1, 100))

    def interrupted(self, *arguments):
        if next(calls) == 8:
            raise KeyboardInterrupt
        step(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(ModelAndOptimizer, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(folder, tmp_path / "interrupted", **chosen)
    torch.manual_seed(1234)
    _, resumed = train(folder, tmp_path / "interrupted", **chosen)
    _, whole = train(folder, tmp_path / "whole", **chosen)
    assert weights(resumed) == weights(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "overrides"),
    [
        ("replaced_tokens", ["teacher=made", "student={layers: 1}"]),
        ("triple", ["student=made"]),
        ("relations", ["student=made"]),
        ("add", ["teacher=made", "student={layers: 1}"]),
    ],
)
def test_task_recipes_start_from_the_product(
    folder: Path, tmp_path: Path, recipe_file: Path, method: str, overrides: list[str]
) -> None:
    train(folder, tmp_path / "runs", **sections(folder, method))
    sets = [part for each in (*overrides, "prune=null") for part in ("--set", each)]
    places = ["--cards", f"{tmp_path}/runs/made", "--runs", f"{tmp_path}/tasks", "--format", "quiet"]
    assert main(["run", str(recipe_file), *places, *sets, "--until", "distill"]) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distill": {"teacher": "{}/plain"}, "shape": STUDENT}, "triple needs a teacher with a masked-LM head"),
        ({"start": "{}/masked", "replaced_tokens": 0.25}, "replaced_tokens trains an ELECTRA"),
        ({"distill": {"teacher": "{}/masked"}, "shape": {"layers": 3}}, "3 layers cannot be taken from 2 layers"),
        (
            {"distill": {"teacher": "{}/masked"}, "shape": {"layers": 1, "positions": 64}},
            "shape.positions: a student that is distilled has its teacher's positions",
        ),
        ({"distill": {"teacher": "{}/modern", "method": "relations"}, "shape": STUDENT}, "modernbert computes query"),
        ({"distill": {"teacher": "{}/masked"}, "start": "{}/roberta"}, "another vocabulary"),
    ],
)
def test_what_cannot_be_is_one_message(folder: Path, tmp_path: Path, changes: dict, message: str) -> None:
    write_tiny_model(tmp_path / "modern", "modernbert")
    write_tiny_model(tmp_path / "roberta", "roberta")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "roberta")
    tokenizer.add_tokens(["another"])
    tokenizer.save_pretrained(tmp_path / "roberta")

    def placed(value):
        if isinstance(value, dict):
            return {key: placed(entry) for key, entry in value.items()}
        if not isinstance(value, str):
            return value
        return value.format(tmp_path if value.endswith(("modern", "roberta")) else folder)

    with pytest.raises(CompressError, match=message):
        train(folder, tmp_path / "runs", **placed(changes))
    assert not (tmp_path / "runs/made/model").exists()


def test_texts_without_cut_words_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("a b c\n\nd e f\n\n" * 40)
    text = {"files": [f"{tmp_path}/letters.txt"], "held_out": 0.4}
    with pytest.raises(CompressError, match="no word that occurs more than once and is cut"):
        train(folder, tmp_path, text=text, start=f"{folder}/masked", vocabulary={"add": 4})
