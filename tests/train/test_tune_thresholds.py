"""Thresholds: tuned on select wherever a model folder is made, and inherited."""

import json

import pytest

from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.measure.predict_rows import predict_rows
from compress.model_folder.model_info import read_info
from compress.prune.cut_and_recover import cut
from compress.recipe.distill_schema import Distill
from compress.recipe.prune_schema import Prune
from compress.recipe.student_schema import Student
from compress.recipe.task_schema import Task
from compress.recipe.training_schema import Finetune
from compress.tasks import kind_of
from compress.train.core.training_data import BATCH, fast_tokenizer, make_evaluator, predict_function
from compress.train.distill import distill
from compress.train.finetune import finetune

CONTEXT = "the plot was dull but a great film it was"


@pytest.fixture(scope="module", params=[True, False], ids=["some without", "all with answers"])
def questions(request, tmp_path_factory):
    """A prepared folder of questions; whether some have no answer."""
    folder = tmp_path_factory.mktemp("questions")
    for role, count in (("train", 24), ("select", 16), ("test", 8)):
        rows = [
            {"question": "what film", "context": CONTEXT, "answers": ["great film"]}
            if number % 2 or not request.param
            else {"question": "what plot", "context": "it was of the film", "answers": []}
            for number in range(count - 1)
        ]
        rows.append({"question": "what plot", "context": CONTEXT, "answers": ["dull"]})
        (folder / f"{role}.json").write_text(json.dumps(rows))
    files = {role: str(folder / f"{role}.json") for role in ("train", "select", "test")}
    (folder / "data").mkdir()
    columns = {"text": ("question", "context"), "label": "answers"}
    prepare_splits(
        Task(name="asked", kind="question_answering", data=files, max_length=24, max_answer=4, **columns),
        0,
        folder / "data",
    )
    return request.param, folder / "data"


@pytest.mark.slow
def test_every_step_has_its_own_threshold(questions, tiny_model, tiny_folder, tmp_path):
    some_without, data = questions
    plain = tiny_folder(tiny_model("bert", head="Model"), task=None)
    settings = Finetune(epochs=1, batch_size=8, precision="fp32")
    taught = tmp_path / "taught"
    made = finetune(str(plain), data, settings, 0, taught)
    assert (made.info.task.threshold is not None) == some_without
    assert read_info(taught).task == made.info.task

    again = finetune(str(taught), data, False, 0, tmp_path / "again")  # taken as it is
    assert again.info.task == made.info.task

    quick = Distill(epochs=1, batch_size=8, precision="fp32")
    student = distill(taught, Student(layers=1), data, quick, 0, tmp_path / "student")
    bare = distill(taught, Student(layers=1), data, False, 0, tmp_path / "bare")
    cut(tmp_path / "student", None, data, Prune(ffn=0.5, batches=1), 0, tmp_path / "cut")
    for info in (student.info, bare.info, read_info(tmp_path / "cut")):
        assert (info.task.threshold is not None) == some_without


def test_checkpoints_are_judged_under_their_best_threshold(questions, tiny_model, tiny_tokenizer):
    _, data = questions
    roles = load_prepared(data)
    task, rows = roles.info.task_info, roles.rows("select")
    model = tiny_model("bert", head="ForQuestionAnswering")
    tokens, kind = fast_tokenizer(model.config, tiny_tokenizer), kind_of(task)
    answers, _ = predict_rows(predict_function(model), rows, task, tokens, BATCH)
    tuned = kind.tune_threshold(answers, kind.gold(rows), task)
    scores = kind.score(kind.apply_threshold(answers, tuned), kind.gold(rows), task)
    assert make_evaluator(rows, task, tokens)(model) == pytest.approx(scores["f1"])
