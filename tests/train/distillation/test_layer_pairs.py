"""Losses that see only what is frozen are reported before the first update."""

import pytest

from compress.errors import ModelError
from compress.models.student.build_student import build_student
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.train.distill import distill_from_model
from compress.train.distillation.distill_objective import DistillObjective

HALVES = ({"share": 0.5, "soft_label": 1.0}, {"share": 0.5, "hidden_state": 1.0, "attention": 1.0})
RISING = {"weight": {"start": 0.0, "end": 1.0}}


def distil(**settings):
    return Distill.model_validate(settings if "phases" in settings else {"hard_label": 0.0, **settings})


@pytest.fixture
def begin(tiny_model, tiny_task):
    """Make the objective of a student, of one layer where nothing else is given."""

    def made(settings, family="bert", **shape):
        teacher = tiny_model(family)
        student = build_student(teacher, Student(**{"layers": 1, **shape}))
        return student, DistillObjective(student, teacher, settings, tiny_task)

    return made


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"freeze": 1, "hidden_state": 1.0},
            "freeze: 1 leaves nothing to train: everything that hidden_state depends on",
        ),
        (
            {"freeze": "embeddings", "embedding": 1.0},
            "freeze: embeddings leaves nothing to train: everything that embedding",
        ),
        (
            {"freeze": 1, "phases": HALVES},
            "nothing to train in phase 2: everything that hidden_state and attention depends on",
        ),
        ({"freeze": 1, "similarity": 1.0, "soft_label": RISING}, "everything that similarity depends on"),
        ({"unfreeze": "gradual", "hidden_state": 1.0}, "unfreeze: gradual leaves nothing to train: everything that"),
        ({"unfreeze": 2, "similarity": 1.0, "soft_label": RISING}, "unfreeze: 2.* leaves nothing to train"),
    ],
)
def test_phase_on_frozen_weights_alone_is_refused(settings, message, begin):
    with pytest.raises(ModelError, match=message) as error:
        begin(distil(**settings))
    assert "soft_label depends on the whole model" in str(error.value.hint)


@pytest.mark.parametrize(
    "settings",
    [
        {"freeze": 1, "hidden_state": 1.0, "soft_label": 1.0},
        {"freeze": 1, "hidden_state": 1.0, "hard_label": 0.5},
        {"freeze": "embeddings", "phases": HALVES},
        {"unfreeze": "gradual", "soft_label": 1.0},
        {"freeze": "embeddings", "embedding": 1.0, "hidden_state": 1.0},
    ],
)
def test_other_phases_are_accepted(settings, begin):
    student, _ = begin(distil(**settings))
    assert all(each.requires_grad for each in student.parameters())


def test_projections_count_as_trainable(begin):
    begin(distil(freeze=1, hidden_state=1.0), hidden=16)


def test_training_refuses_before_its_first_update(tiny_model, tiny_tokenizer, tiny_task, rows, tmp_path):
    teacher = tiny_model("bert")
    student = build_student(teacher, Student(layers=1))
    settings = distil(freeze=1, phases=HALVES, max_steps=4, precision="fp32")
    with pytest.raises(ModelError, match="in phase 2"):
        distill_from_model(teacher, student, tiny_tokenizer, rows(9), rows(4), tiny_task, settings, work=tmp_path)
    assert not list(tmp_path.glob("**/*.safetensors"))
