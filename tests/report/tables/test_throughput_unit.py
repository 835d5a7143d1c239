"""The unit of timings is named wherever they are shown."""

import pytest

from compress.report.pages.render import render_html, render_markdown
from compress.report.tables.speed_tables import timing_table
from compress.report.tables.throughput_unit import timed_unit
from tests.report.conftest import apply_gates


@pytest.fixture
def report_of(make_report):
    """A function that makes a report of another task."""

    def make(batch=1, **task):
        made = make_report()
        info = made.task.model_copy(update=task)
        data = made.data.model_copy(update={"examples_per_row": 4.0})
        targets = tuple(target.model_copy(update={"batch": batch}) for target in made.targets)
        return apply_gates(made.model_copy(update={"task": info, "data": data, "targets": targets}))

    return make


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ({"kind": "classification"}, "row"),
        ({"kind": "classification", "long": "mean"}, "window"),
        ({"kind": "question_answering"}, "window"),
        ({"kind": "multiple_choice"}, "choice"),
        ({"kind": "ranking"}, "candidate"),
        ({"kind": "similarity"}, "text"),
        ({"kind": "retrieval"}, "row"),
    ],
)
def test_the_unit_of_each_kind(report_of, task, name):
    assert timed_unit(report_of(**task)) == name


def test_choices_are_not_called_rows(report_of):
    report = report_of(kind="multiple_choice")
    for page in (render_markdown(report), render_html(report)):
        assert "a batch of choices (a test row has 4.0 on average); end to end covers complete rows" in page
        assert "for 1 choice" in page
        assert "rows/s" not in page
    assert "choices/s" in timing_table(report, "cpu").columns
    assert "for 8 choices" in render_markdown(report_of(8, kind="multiple_choice"))


def test_rows_need_no_unit(report_of):
    page = render_markdown(report_of())
    assert "Speed is the model alone, one call, and" in page
    assert "rows/s" in page
    assert " for 1 " not in page
