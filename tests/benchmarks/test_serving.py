"""What the benchmark of the service compares and shows; no service is started."""

import ast

import pytest

from benchmarks.other_servers import OTHER_SERVERS
from benchmarks.report_store import beginning
from benchmarks.serving import OURS, Load, ServingReport, is_same, page

ANSWER = {"label": "good", "probability": 0.75, "embedding": [0.5, 0.25], "reason": None}


def test_answers_are_the_same_but_for_the_last_digits():
    assert is_same(ANSWER, {**ANSWER, "probability": 0.7504, "embedding": [0.5004, 0.25], "more": 1})
    for name, value in (("label", "bad"), ("probability", 0.76), ("embedding", [0.5, 0.26]), ("reason", "no text")):
        assert not is_same(ANSWER, {**ANSWER, name: value})


def test_the_page_says_what_the_service_adds():
    service = next(iter(OURS))
    loads = tuple(
        Load(model="sst2", service=service, load=load, seconds=2.0, answered=answered, p50=1.5, p99=3.0)
        for load, answered in (("callers: 1", 1000), ("callers: 2", 1500), ("4 × capacity", 1800))
    )
    report = ServingReport(**beginning("x", trial=False), loads=loads, alone={"sst2": 1.0}, memory={"sst2": (90, 91)})
    shown = page(report)
    assert "1.50 ms for one caller, the model alone 1.00 ms; at most 750 answers a second: 75% of one thread" in shown
    assert "90 MB before, 91 MB after" in shown


@pytest.mark.parametrize("name", OTHER_SERVERS)
def test_programs_of_others_can_be_read(name):
    ast.parse(OTHER_SERVERS[name].program)
