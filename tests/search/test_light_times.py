"""Untrained students without attention are timed for every kind of task that they can do."""

import io
from types import SimpleNamespace

import pytest

from compress.console import Console
from compress.model_folder.model_info import TaskInfo
from compress.prune.measure_latency import random_inputs
from compress.recipe.schema import Teacher
from compress.recipe.student_schema import LightStudent
from compress.runtime.predictor import Placement
from compress.search import light_times
from compress.search.light_times import VOCABULARY, measure_light_times, milliseconds_of, read_light_times
from compress.tasks import KINDS


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [name for name, kind in KINDS.items() if not kind.needs_attention and not kind.searches]
)
def test_a_student_is_timed_for_each_kind_of_task(kind: str) -> None:
    labels = () if kind in ("regression", "similarity", "ranking") else ("a", "b", "c")
    texts = ("text", "other") if kind in ("similarity", "ranking") else ("text",)
    metric = KINDS[kind].metrics[0].name
    task = TaskInfo(name="t", kind=kind, labels=labels, text=texts, metric=metric, max_length=16)
    arrays = random_inputs(2, 16, VOCABULARY)
    for name in ("conv",) if KINDS[kind].needs_order else ("static", "conv"):
        student = LightStudent(kind=name, hidden=16, head_width=8)
        assert 0.0 < milliseconds_of(student, task, Placement("cpu", 1), arrays) < 1000.0


def test_the_teacher_is_timed_in_pytorch_whatever_else_its_folder_has(tiny_folder, tmp_path, monkeypatch) -> None:
    teacher = tiny_folder("bert", task=None)
    (teacher / "onnx").mkdir()
    (teacher / "onnx" / "model.onnx").write_bytes(b"no graph")
    assert 0.0 < timed(teacher, tmp_path, monkeypatch).teacher < 1000.0


def test_a_teacher_that_cannot_be_timed_ends_no_search(tmp_path, monkeypatch) -> None:
    console = Console("quiet", err=io.StringIO())
    assert timed(tmp_path / "none", tmp_path, monkeypatch, console).teacher is None
    assert "the teacher could not be timed" in console.err.getvalue()


def timed(teacher, work, monkeypatch, console=None):
    """What the step writes with this teacher and no students."""
    shape = SimpleNamespace(vocabulary=64)
    monkeypatch.setattr(light_times, "read_workload", lambda folder: (shape, 8))
    prepared = SimpleNamespace(info=SimpleNamespace(task_info=None))
    monkeypatch.setattr("compress.data.splits.prepare_splits.load_prepared", lambda folder: prepared)
    context = SimpleNamespace(inputs={"data": None, "workload": None}, work=work, console=console or Console("quiet"))
    measure_light_times(context, {}, 1, 2, Teacher(source=str(teacher)))
    return read_light_times(work)
