"""Untrained students without attention are timed for every kind of task that they can do."""

import pytest

from compress.model_folder.model_info import TaskInfo
from compress.prune.measure_latency import random_inputs
from compress.recipe.student_schema import LightStudent
from compress.runtime.predictor import Placement
from compress.search.light_times import VOCABULARY, milliseconds_of
from compress.tasks import KINDS


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
