"""What a million texts cost, in the ledger and beside a service."""

import pytest

from compress.report.report_warnings import report_warnings
from compress.report.run_facts import ServiceFacts
from compress.report.tables.ledger_tables import MILLION, ledger_table
from compress.report.text_costs import cost_of_texts
from tests.report.conftest import apply_gates

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
