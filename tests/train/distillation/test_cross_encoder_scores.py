import json

import numpy as np
import pytest
import torch

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.errors import DataError, ModelError, UsageError
from compress.model_folder.model_info import TaskInfo
from compress.models.student.build_student import build_student
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.recipe.task_schema import Task
from compress.train.distill import distill, distill_from_model
from compress.train.distillation.cross_encoder_scores import add_cross_encoder_scores, check_margin_loss
from compress.train.distillation.distill_objective import DistillObjective

SEARCH = TaskInfo(name="find", kind="retrieval", text=("query",), metric="mrr", max_length=32)
RANKING = TaskInfo(name="rank", kind="ranking", text=("text", "candidates"), metric="map", max_length=32)
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
WORDS = ["good", "great", "fine", "bad", "dull"]


def rows_of(count, negatives=2):
    return [
        {
            "query": f"the {WORDS[number % 5]} film",
            "positives": [f"a {WORDS[number % 5]} plot {'very ' * (number % 4)}"],
            "negatives": [f"so {WORDS[(number + 1 + other) % 5]}" for other in range(negatives)],
        }
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def encoder(tiny_model, tiny_folder):
    return tiny_folder(tiny_model("bert", labels=("score",)), RANKING)


@pytest.fixture
def quiet():
    return Console("quiet")


def settings_of(folder=None, **others):
    return Distill(**{"losses": {"margin": 1.0}, "cross_encoder": folder and str(folder), **others})


def test_every_pair_gets_the_score_of_the_cross_encoder(encoder, tiny_model, tiny_tokenizer, tmp_path, quiet):
    rows = [*rows_of(5), *rows_of(3, negatives=1)]
    result = add_cross_encoder_scores(rows, settings_of(encoder), SEARCH, tmp_path, quiet)
    model = tiny_model("bert", labels=("score",))
    assert len(result) == 8
    for row, scored in zip(rows, result, strict=True):
        texts = [*row["positives"], *row["negatives"]]
        pairs = [tiny_tokenizer(row["query"], text, return_tensors="pt", return_token_type_ids=True) for text in texts]
        with torch.no_grad():
            expected = [model(**pair).logits.item() for pair in pairs]
        assert {name: scored[name] for name in row} == row
        assert scored["scores"] == pytest.approx(expected, abs=1e-4)
    assert result[-1] == result[7]
    assert result[2:4] == [result[2], result[3]]


def test_scores_are_computed_once(encoder, tmp_path, quiet, monkeypatch):
    rows = rows_of(4)
    before = add_cross_encoder_scores(rows, settings_of(encoder), SEARCH, tmp_path, quiet)
    monkeypatch.setattr("compress.train.distillation.cross_encoder_scores.score_pairs", None)
    after = add_cross_encoder_scores(rows, settings_of(encoder), SEARCH, tmp_path, quiet)
    assert [row["scores"] for row in before] == [row["scores"] for row in after]


def test_other_rows_are_scored_again(encoder, tmp_path, quiet):
    rows = rows_of(4)
    add_cross_encoder_scores(rows, settings_of(encoder), SEARCH, tmp_path, quiet)
    changed = [{**row, "negatives": [f"not {text}" for text in row["negatives"]]} for row in rows]
    result = add_cross_encoder_scores(changed, settings_of(encoder), SEARCH, tmp_path, quiet)
    fresh = add_cross_encoder_scores(changed, settings_of(encoder), SEARCH, tmp_path / "fresh", quiet)
    assert [row["scores"] for row in result] == [row["scores"] for row in fresh]
    more = add_cross_encoder_scores(rows_of(6), settings_of(encoder), SEARCH, tmp_path, quiet)
    assert [len(row["scores"]) for row in more] == [3] * 6


def test_rows_are_unchanged_without_the_margin_loss(tmp_path, quiet):
    rows = rows_of(2)
    assert add_cross_encoder_scores(rows, Distill(), SEARCH, tmp_path, quiet) is rows


def test_rows_may_have_scores(tmp_path, quiet):
    rows = [{**row, "scores": [1.0, 0.5, -2.0]} for row in rows_of(2)]
    assert add_cross_encoder_scores(rows, settings_of(), SEARCH, tmp_path, quiet) is rows
    rows[1] = {**rows[1], "scores": [1.0]}
    with pytest.raises(UsageError, match="needs one score per document of each row"):
        add_cross_encoder_scores(rows, settings_of(), SEARCH, tmp_path, quiet)


def test_rows_without_negatives_are_reported_before_training(encoder, tmp_path):
    with pytest.raises(DataError, match="no training row has negatives") as caught:
        add_cross_encoder_scores(rows_of(3, negatives=0), settings_of(encoder), SEARCH, tmp_path, Console("quiet"))
    assert "hard_negatives" in caught.value.hint


def test_invalid_settings_are_refused(encoder, tiny_folder, tmp_path, tiny_task):
    with pytest.raises(UsageError, match="classification has none"):
        check_margin_loss(settings_of(encoder), tiny_task)
    with pytest.raises(UsageError, match="no loss uses it"):
        check_margin_loss(settings_of(encoder, losses={"soft_label": 1.0}), SEARCH)
    with pytest.raises(ModelError, match=r"is a classification model; expected a ranking model"):
        check_margin_loss(settings_of(tiny_folder("bert")), SEARCH)
    with pytest.raises(ModelError, match="no model folder at"):
        check_margin_loss(settings_of(tmp_path / "nowhere"), SEARCH)


def test_a_student_follows_margins(encoder, tiny_model, tiny_tokenizer, tmp_path, quiet):
    teacher = tiny_model("bert", head="ForSentenceEmbedding", pooling="mean", **STILL)
    student = build_student(teacher, Student(layers=1))
    chosen = settings_of(encoder, hard_label=0.0, epochs=30, batch_size=8, learning_rate=3e-3, precision="fp32")
    scored = list(add_cross_encoder_scores(rows_of(20), chosen, SEARCH, tmp_path, quiet))
    objective = DistillObjective(student, teacher, chosen, SEARCH)

    def margins(model):
        losses = []
        for row in scored:
            texts = [row["query"], *row["positives"], *row["negatives"]]
            batch = dict(tiny_tokenizer(texts, padding=True, return_tensors="pt"))
            batch |= {"part": torch.tensor([0, 1, 2, 2]), "group": torch.zeros(4).long()}
            with torch.no_grad():
                losses.append(
                    objective(model, {**batch, "scores": torch.tensor([0.0, *row["scores"]])})["margin"].item()
                )
        return np.mean(losses)

    student.train(False)
    before = margins(student)
    distill_from_model(teacher, student, tiny_tokenizer, rows_of(20), [], SEARCH, chosen)
    assert margins(student) < before / 2


def test_step_uses_the_cross_encoder_and_removes_scores(encoder, tiny_model, tiny_folder, tmp_path):
    lines = [json.dumps({"query": f"a {row['query']}", "answer": row["positives"][0]}) for row in rows_of(40)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    files = {"train": str(tmp_path / "train.jsonl"), "select_share": 0.2, "test_share": 0.2}
    task = Task(kind="retrieval", data=files, text="query", label="answer", hard_negatives=2, max_length=32)
    data, work = tmp_path / "data", tmp_path / "work"
    data.mkdir()
    work.mkdir()
    prepare_splits(task, 0, data)
    teacher = tiny_folder(
        tiny_model("bert", head="ForSentenceEmbedding", pooling="mean"), load_prepared(data).info.task_info
    )
    chosen = settings_of(encoder, epochs=1, batch_size=8, precision="fp32")
    made = distill(teacher, Student(layers=1), data, chosen, 0, work)
    assert set(made.result.history[-1].losses) == {"margin", "hard_label"}
    assert not list(work.rglob("*scores*"))
    assert not (work / "training").exists()
