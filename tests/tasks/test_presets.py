"""The table of named tasks: each entry is a sound long form."""

import pytest

from compress.data.splits.prepare_splits import prepare_splits
from compress.recipe.load import load_recipe
from compress.recipe.task_schema import Task
from compress.tasks import KINDS, TASK_NAMES, primary_metric, task_info
from compress.tasks.presets import NAMED_TASKS
from compress.tasks.validate_task import task_problems

GLUE = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"}


@pytest.mark.parametrize("name", NAMED_TASKS)
def test_presets_are_valid_tasks(name):
    task = Task.model_validate(NAMED_TASKS[name])
    assert task.name == name
    assert task_problems(task) == []
    assert primary_metric(task).name == task.metric
    assert task_info(task, ()).name == name


@pytest.mark.parametrize("name", NAMED_TASKS)
def test_a_recipe_may_be_called_as_a_named_task_is(name, tmp_path):
    rows = "".join(f"text {number};{'yes' if number % 2 else 'no'}\n" for number in range(20))
    (tmp_path / "rows.csv").write_text(f"message;answer\n{rows}")
    path = tmp_path / f"{name}.yaml"
    data = f"{{train: {tmp_path}/rows.csv, test_share: 0.2}}"
    path.write_text(f"task: {{kind: classification, data: {data}, text: message, label: answer}}\nteacher: any\n")
    names = TASK_NAMES
    recipe = load_recipe(path, (), names)
    info = prepare_splits(recipe.task, 0, tmp_path)
    assert (recipe.name, info.task_info.name, info.labels) == (name, "classification", ("no", "yes"))


def test_no_named_task_is_called_as_a_kind_is():
    assert not set(NAMED_TASKS) & set(KINDS)


def test_all_glue_tasks_have_presets():
    assert set(NAMED_TASKS) >= GLUE


@pytest.mark.parametrize("name", sorted(GLUE))
def test_glue_is_never_scored_on_its_unlabelled_test(name):
    data = NAMED_TASKS[name]["data"]
    assert data["hub"] == f"nyu-mll/glue/{name}"
    assert data["test"].startswith("validation")
