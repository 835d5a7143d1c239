import io

import pytest
import torch

from compress.console import Console
from compress.errors import CompressError
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.train.distill import distill, distill_from_model
from compress.train.distillation.phases import settings_warnings, settings_warnings_start, settings_warnings_updates

ALONE = "no loss uses the teacher: the student is trained on the labels alone"
HALVES = [{"share": 0.999, "hidden_state": 1}, {"share": 0.001, "soft_label": 1}]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, []),
        ({"soft_label": None}, [ALONE]),
        ({"losses": {}, "hard_label": 1.0}, [ALONE]),
        ({"margin": 1.0}, ["no loss uses the teacher: the student is trained on the cross-encoder"]),
        ({"hidden_state": 1.0, "hard_label": 0.0}, ["no loss trains the outputs"]),
        ({"phases": [{"share": 1, "hidden_state": 1}]}, ["no loss trains the outputs"]),
        ({"phases": HALVES}, []),
        ({"phases": [{"share": 0.5, "hard_label": 1}, {"share": 0.5, "hidden_state": 1}]}, []),
    ],
)
def test_missing_losses_are_warned_about(settings, message):
    result = list(settings_warnings(Distill.model_validate(settings)))
    assert [result.startswith(begin) for result, begin in zip(result, message, strict=True)] == [True] * len(message)


def test_unrequested_random_start_is_warned_about():
    assert list(settings_warnings_start("random", Student(layers=1))) != []
    assert list(settings_warnings_start("random", Student(layers=1, start="random"))) == []
    assert list(settings_warnings_start("slice", Student(layers=1))) == []
    assert list(settings_warnings_start(None, Student(source="somewhere"))) == []


@pytest.mark.parametrize(("updates", "idle"), [(1, ["phase 2"]), (2, ["phase 2"]), (1000, []), (1001, [])])
def test_phases_without_an_update(updates, idle):
    """The second begins once 0.999 of all updates are done: the last of 1000 is the first that it has."""
    result = list(settings_warnings_updates(Distill.model_validate({"phases": HALVES}), updates))
    assert [warning.split(" has")[0] for warning in result] == idle


def test_distillation_prints_warnings(tiny_folder, prepared, tmp_path):
    console = Console("human", io.StringIO(), io.StringIO())
    settings = Distill.model_validate({"max_steps": 2, "precision": "fp32", "phases": HALVES})
    distill(tiny_folder("bert"), Student(layers=1, heads=8), prepared, settings, 0, tmp_path, console=console)
    output = console.err.getvalue()
    assert "warning: distill: the student starts with random weights" in output
    assert "warning: distill: phase 2 has none of the 2 updates" in output
    assert "; initialised: random" in output


def test_distillation_in_memory_prints_warnings(tiny_model, tiny_tokenizer, tiny_task, rows):
    console = Console("human", io.StringIO(), io.StringIO())
    settings = Distill(max_steps=1, precision="fp32", losses={})
    teacher, student = tiny_model("bert"), tiny_model("bert")
    distill_from_model(teacher, student, tiny_tokenizer, rows(9), rows(4), tiny_task, settings, console=console)
    assert f"warning: distill: {ALONE}" in console.err.getvalue()


def test_teacher_with_nan_outputs_is_named(tiny_model, tiny_tokenizer, tiny_task, rows):
    good, broken = tiny_model("bert"), tiny_model("bert")
    with torch.no_grad():
        broken.classifier.bias[0] = float("nan")
    settings = Distill(max_steps=1, precision="fp32", losses={"soft_label": 1.0})
    teachers = [(good, 1.0), (broken, 1.0)]
    with pytest.raises(
        CompressError, match=r"soft_label became nan .*; the outputs of the teacher 2 itself are not finite"
    ) as caught:
        distill_from_model(teachers, tiny_model("bert"), tiny_tokenizer, rows(9), rows(4), tiny_task, settings)
    assert str(caught.value.hint).startswith("check the teacher 2 or use another")


def test_nan_of_student_does_not_name_the_teacher(tiny_model, tiny_tokenizer, tiny_task, rows):
    student = tiny_model("bert")
    with torch.no_grad():
        student.classifier.bias[0] = float("nan")
    settings = Distill(max_steps=1, precision="fp32", losses={"soft_label": 1.0})
    with pytest.raises(CompressError, match="became nan") as caught:
        distill_from_model(tiny_model("bert"), student, tiny_tokenizer, rows(9), (), tiny_task, settings)
    assert "itself" not in str(caught.value)
    assert "a smaller weight for this loss" in str(caught.value.hint)
