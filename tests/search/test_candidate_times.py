"""Untrained models are timed: as large as parts, and students without attention for every kind of task they can do."""

import io
from types import SimpleNamespace

import pytest

from compress.console import Console
from compress.model_folder.model_info import TaskInfo
from compress.model_shapes import parts_of
from compress.recipe.schema import Teacher
from compress.recipe.student_schema import LightStudent, Part
from compress.runtime.predictor import ONE_THREAD
from compress.search import candidate_times
from compress.search.candidate_times import (
    PART_TIMES,
    PART_TIMES_FILE,
    POINTS,
    PartTimes,
    Turns,
    _spread,
    light_ratio,
    measure_light_times,
    read_light_times,
    time_parts,
)
from compress.storage.atomic_write import write_model
from compress.tasks import KINDS
from tests.prune.test_latency_table import shape


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["onnx-fp32", "onnx-int8"])
def test_models_as_large_as_parts_are_timed(monkeypatch, variant):
    monkeypatch.setattr(candidate_times, "SECONDS", 0.0)
    monkeypatch.setattr("compress.prune.measure_latency.TURN_SECONDS", 0.0)
    largest = shape(heads=(4,) * 3, ffn=(64,) * 3)
    times = time_parts(Turns(largest, variant, ONE_THREAD, 2, 12), Console("quiet"))
    assert (times.variant, times.layers, times.heads, times.ffn) == (variant, (1, 2, 3), (1, 2, 4), (8, 16, 64))
    assert all(times.of(part) > 0.0 for part in parts_of(largest))


def test_a_model_of_one_size_is_timed_alone(monkeypatch):
    monkeypatch.setattr(candidate_times, "SECONDS", 0.0)
    monkeypatch.setattr("compress.prune.measure_latency.TURN_SECONDS", 0.0)
    times = time_parts(Turns(shape(heads=(1,), ffn=(1,)), "onnx-fp32", ONE_THREAD, 1, 4), Console("quiet"))
    assert [times.layers, times.heads, times.ffn] == [(1,)] * 3
    assert times.of(Part(layers=1, heads=1, ffn=1)) == times.milliseconds[0][0][0]


def test_few_sizes_are_timed_and_both_ends_always():
    assert _spread(range(1, 13), POINTS[0]) == (1, 2, 5, 12)
    assert _spread((192, 384, 768, 1152, 1536), 3) == (192, 384, 1536)
    assert _spread((2, 3), 4) == (2, 3)
    assert _spread((7,), 3) == (7,)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [name for name, kind in KINDS.items() if not kind.needs_attention and not kind.searches]
)
def test_a_student_is_timed_for_each_kind_of_task(kind: str) -> None:
    labels = () if kind in ("regression", "similarity", "ranking") else ("a", "b", "c")
    texts = ("text", "other") if kind in ("similarity", "ranking") else ("text",)
    metric = KINDS[kind].metrics[0].name
    task = TaskInfo(name="t", kind=kind, labels=labels, text=texts, metric=metric, max_length=16)
    turns = Turns(shape(), "onnx-fp32", ONE_THREAD, 2, 16)
    for name in ("conv",) if KINDS[kind].needs_order else ("static", "conv"):
        student = LightStudent(kind=name, hidden=16, head_width=8)
        assert 0.0 < light_ratio(student, task, turns) < 1000.0


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
    of_parts = PartTimes(variant="onnx-fp32", largest=2.0, layers=(1,), heads=(1,), ffn=(1,), milliseconds=(((2.0,),),))
    write_model(work / PART_TIMES_FILE, of_parts)
    monkeypatch.setattr(candidate_times, "read_workload", lambda folder: (shape(), 8))
    prepared = SimpleNamespace(info=SimpleNamespace(task_info=None))
    monkeypatch.setattr("compress.data.splits.prepare_splits.load_prepared", lambda folder: prepared)
    inputs = {"data": None, "workload": None, PART_TIMES: work}
    context = SimpleNamespace(inputs=inputs, work=work, console=console or Console("quiet"))
    measure_light_times(context, {}, 1, 2, Teacher(source=str(teacher)))
    return read_light_times(work)
