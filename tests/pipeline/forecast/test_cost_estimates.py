"""What trainings are expected to cost, against what they find in the same rows."""

import json

import pytest

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared
from compress.data.tokenizer import TextTokenizer
from compress.models.tiny import write_tiny_model
from compress.pipeline.execute import Executor
from compress.pipeline.forecast.cost_estimates import Estimates
from compress.pipeline.run import Options, prepare
from compress.pipeline.step_store import StepStore
from compress.pipeline.torchrun_launch import Launch
from compress.train.core import training_data

RECIPE = """\
task: {{kind: {kind}, max_length: 32, data: {{train: {folder}/rows.jsonl, test: {folder}/rows.jsonl}}}}
teacher: {folder}/teacher
finetune: {{epochs: 1, learning_rate: 0.003}}
"""


def choices(number):
    return {"question": f"what on day {number} ?", "choices": [f"sun {n}" for n in range(40)], "answer": "A"}


def texts(number):
    context = "the sun is warm and the sky is blue " * (1 + number % 3)
    word = ("sun", "sky")[number % 2]
    answers = {"text": [word], "answer_start": [context.index(word)]}
    return {"question": f"what on day {number} ?", "context": context, "answers": answers}


@pytest.fixture
def estimates(tmp_path):
    """Makes the estimates of a plan whose data step is done."""

    def make(kind, row, *overrides):
        lines = (json.dumps(row(number)) for number in range(60))
        (tmp_path / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
        (tmp_path / "recipe.yaml").write_text(RECIPE.format(kind=kind, folder=tmp_path), encoding="utf-8")
        write_tiny_model(tmp_path / "teacher", "bert")
        options = Options(runs=tmp_path / "runs")
        plan, store = prepare(tmp_path / "recipe.yaml", overrides, options), StepStore(options.root)
        Executor(plan, store, Console("quiet"), tmp_path / "events.jsonl", Launch()).run(set(), until="data")
        return Estimates(plan, store)

    return make


@pytest.mark.parametrize(("kind", "row", "batch"), [("multiple_choice", choices, 6), ("question_answering", texts, 16)])
def test_auto_settings_are_those_of_the_training(estimates, kind, row, batch, tmp_path):
    expected = estimates(kind, row)
    roles = load_prepared(expected.store.folder("data", expected.plan.step("data").fingerprint))
    rows, tokens = (roles.rows("train"), roles.rows("select")), TextTokenizer.load(tmp_path / "teacher")
    actual = training_data.from_rows(*rows, roles.info.task_info, tokens, Console("quiet")).facts()
    assert expected._facts(expected.plan.teacher) == actual
    assert actual.rows * actual.examples_per_row > len(rows[0])  # several examples a row, or windows
    assert expected.settings(expected.plan.teacher).batch_size == batch


def test_choices_cost_time_and_memory(estimates):
    many = estimates("multiple_choice", choices, "finetune.batch_size=8")
    teacher = many.plan.teacher
    few = estimates("multiple_choice", lambda number: {**choices(number), "choices": ["sun 1", "sun 2"]}, "seed=1")
    assert many.training(teacher).operations == pytest.approx(20 * few.training(teacher).operations, rel=0.1)
    assert many.training(teacher).memory > few.training(teacher).memory
