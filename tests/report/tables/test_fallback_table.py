"""Which layers of quantized variants returned to fp32, as a table."""

import pytest

from compress.report.pages.render import render_html, render_markdown
from compress.report.tables.ledger_tables import fallback_table
from compress.select.quantized_files import Fallback, QuantizationLoss
from tests.report.conftest import apply_gates

HEADING = "Layers returned to fp32"


def loss(drop, outcome="passed"):
    return QuantizationLoss(outcome=outcome, score=0.9 - drop, drop=drop, error=0.001, allowed=0.005)


@pytest.fixture
def report_of(make_report):
    def made(fallback):
        report = make_report()
        rows = [
            row.model_copy(update={"fallback": fallback}) if row.key == "student/onnx-int8" else row
            for row in report.rows
        ]
        return apply_gates(report.model_copy(update={"rows": tuple(rows)}))

    return made


def test_layers_with_what_they_gained_and_cost(report_of):
    report = report_of(
        Fallback(
            loss=loss(0.03, "missed"), fp32_layers=("encoder.0.ffn", "head"), loss_with_fp32=loss(0.002), slowdown=1.17
        )
    )
    (row,) = fallback_table(report).rows
    assert row == {
        "model": "student",
        "variant": "onnx-int8",
        "loss in INT8": "3 points",
        "allowed": "0.5 points",
        "loss now": "0.2 points",
        "time": "1.17×",
        "fp32 layers": "encoder.0.ffn, head",
    }
    assert HEADING in render_markdown(report)
    assert HEADING in render_html(report)


def test_where_no_layers_help_the_reason_is_shown(report_of):
    (row,) = fallback_table(report_of(Fallback(loss=loss(0.03, "missed"), reason="it also misses with 5"))).rows
    assert row["fp32 layers"] == "none: it also misses with 5"


def test_variants_that_lose_no_more_than_allowed_are_not_shown(report_of):
    report = report_of(Fallback(loss=loss(0.003)))
    assert fallback_table(report).rows == ()
    assert HEADING not in render_markdown(report)
