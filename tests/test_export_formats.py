"""Formats that the only model of a recipe, a teacher with a BiLSTM, cannot have."""

import pytest

from compress import export_formats
from compress.export_formats import format_problems, left_out_formats, listed_formats
from compress.pipeline.preflight.allowed_names import NAMES
from compress.recipe.load import parse_recipe

TAGS = "task: {kind: token_classification, data: {train: a.conll, test: b.conll}}\nteacher: any\n"
BILSTM = "finetune: {features: last4, head: bilstm}\n"


@pytest.fixture
def all_installed(monkeypatch):
    monkeypatch.setattr(export_formats, "missing_extras", lambda form: {})
    monkeypatch.setattr(export_formats, "missing_programs", lambda form: [])


def recipe(rest):
    return parse_recipe(f"{TAGS}{BILSTM}{rest}", "films", (), NAMES)


def test_a_format_without_lstm_is_refused(all_installed):
    (problem,) = format_problems(recipe("export: [onnx, litert, executorch]"))
    assert problem.path == ("export", 2)
    assert problem.message.startswith(
        "executorch has no LSTM, and the head of the only model is a BiLSTM: add a student"
    )


def test_a_student_may_have_any_format(all_installed):
    assert not list(format_problems(recipe("student: {layers: 2}\nexport: executorch")))


def test_all_leaves_it_out(all_installed):
    named = recipe("export: all")
    assert "executorch" not in {each.format for each in listed_formats(named)}
    reason = "executorch has no LSTM, and the head of the only model is a BiLSTM"
    assert left_out_formats(named) == {"executorch": f"export: all leaves out executorch: {reason}"}
