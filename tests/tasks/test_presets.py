"""The table of named tasks: each entry is a sound long form."""

import pytest

from compress.recipe.task_schema import Task
from compress.tasks import primary_metric
from compress.tasks.presets import NAMED_TASKS
from compress.tasks.validate_task import task_problems

GLUE = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"}


@pytest.mark.parametrize("name", NAMED_TASKS)
def test_presets_are_valid_tasks(name):
    task = Task.model_validate(NAMED_TASKS[name])
    assert task.name == name
    assert task_problems(task) == []
    assert primary_metric(task).name == task.metric


def test_all_glue_tasks_have_presets():
    assert set(NAMED_TASKS) >= GLUE


@pytest.mark.parametrize("name", sorted(GLUE))
def test_glue_is_never_scored_on_its_unlabelled_test(name):
    data = NAMED_TASKS[name]["data"]
    assert data["hub"] == f"nyu-mll/glue/{name}"
    assert data["test"].startswith("validation")
