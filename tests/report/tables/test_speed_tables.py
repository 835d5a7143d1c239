"""The unit of timings is named wherever they are shown."""

import pytest

from compress import format_numbers as fmt
from compress.report.pages.render import render_html, render_markdown
from compress.report.report_warnings import report_warnings
from compress.report.run_facts import ServiceFacts
from compress.report.tables.ledger_tables import MILLION, ledger_table
from compress.report.tables.speed_tables import cost_of_texts, timed_unit, timing_table
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


SERVICE = ServiceFacts(model="large", tested=True, self_agreement=0.931, cost_of_million=150.0)


@pytest.fixture
def priced(make_report):
    def make(price=3.6, **changes):
        report = make_report(**changes)
        targets = tuple(target.model_copy(update={"price": price}) for target in report.targets)
        return apply_gates(report.model_copy(update={"targets": targets}))

    return make


def test_a_million_texts_cost_the_time_of_the_model_and_of_tokenizing(priced):
    report = priced()
    result = report.result("pruned/onnx-int8", "cpu")
    # 0.61 ms of the model and 0.12 ms around it, at 0.001 a second
    assert cost_of_texts(report, "cpu", result) == pytest.approx(0.73, rel=0.05)
    assert cost_of_texts(priced(price=None), "cpu", result) is None


def test_the_cost_of_a_cascade_follows_its_mean(priced):
    report = priced()
    result = report.result("pruned/onnx-int8", "cpu")
    assert result.latency.model is not None
    timings = {}
    for name in ("model", "end_to_end"):
        part = getattr(result.latency, name)
        timings[name] = part.model_copy(update={"mean": part.p50.model_copy(update={"value": 2 * part.p50.value})})
    by_mean = result.model_copy(update={"latency": result.latency.model_copy(update={**timings, "by_mean": True})})
    around = result.latency.end_to_end.p50.value - result.latency.model.p50.value
    difference = cost_of_texts(report, "cpu", by_mean) - cost_of_texts(report, "cpu", result)
    assert difference == pytest.approx(1e6 * around / 1e3 / 3600 * 3.6)


@pytest.mark.parametrize(("rate", "shown"), [(0.42, "0.42"), (9.7, "9.7"), (1821.0, "1,821"), (None, "–")])
def test_slow_models_have_a_rate_too(rate, shown):
    assert fmt.rate(rate) == shown


def test_the_ledger_has_the_cost_of_each_row_and_of_the_service(priced):
    table = ledger_table(priced(service=SERVICE), "cpu")
    costs = {(row["model"], row["variant"]): row[MILLION] for row in table.rows}
    assert costs["large", "–"] == "150.00"
    assert float(costs["pruned", "onnx-int8"]) < 1 < float(costs["teacher", "torch-fp32"])
    assert table.rows[-1]["gate"] == "service"
    assert MILLION in ledger_table(priced(), "cpu").columns
    assert MILLION not in ledger_table(priced(price=None), "cpu").columns


def test_remarks_say_what_scores_mean(priced):
    first, second, *_ = report_warnings(priced(service=SERVICE))
    assert first == (
        "The labels of test are answers of large: scores are agreement with it; two of its own answers to one text"
        " agree in 93.1 %."
    )
    assert second.startswith("A million texts cost 150.00 with large and 0.7")
    other = SERVICE.model_copy(update={"tested": False})
    assert "scores are not agreement" in report_warnings(priced(service=other))[0]
