"""The reports of tests/report, for the tests of gate and winner."""

from tests.report.conftest import latency_of, make_report, quality_of

__all__ = ["latency_of", "make_report", "quality_of"]
