"""The report as stored and as a page."""

from benchmarks.harness.harness_page import page
from benchmarks.harness.harness_results import HarnessReport, Turn

MACHINE = {
    "looked_at": "2026-01-01T00:00:00+00:00",
    "fingerprint": "abc",
    "system": "Linux 6",
    "python": "3.12.1",
    "cpu": "A | processor",
    "machine": "x86_64",
    "cores": 2,
    "cores_of_machine": 4,
    "memory": 2**33,
    "load": 0.25,
    "versions": {"onnxruntime": "1.0"},
}


def make(*rows, **facts):
    origin = {
        "begun_at": "2026-01-01T00:00:00+00:00",
        "made_by": "compress 0",
        "command": "python -m benchmarks.harness",
    }
    return HarnessReport(rows=rows, **origin, **facts)


def test_failing_rows_stay_in_the_table(row):
    failed = row.model_copy(update={"result": "12 ms: +7.0%", "passed": False, "reason": None})
    text = page(make(failed, seconds=100.0))
    assert "| one thing | holds | 12 ms: +7.0% | **no** |" in text
    assert "took 1 min 40 s" in text


def test_rows_not_run_give_a_reason(row):
    text = page(make(row))
    assert "| one thing | holds | - | not decided: not run |" in text
    assert "did not finish" in text


def test_turns_and_sessions_stand_behind_the_table(row, session):
    with_turns = row.model_copy(
        update={"turns": (Turn(ours=10.0, theirs=8.0),), "setup": {"command": "python -m other"}}
    )
    sessions = (session(1.02, p50={"plain": 3.0}, other_load=0.1, reasons=("a | b",)), session(None))
    text = page(make(with_turns, row.model_copy(update={"sessions": sessions})))
    assert "| 1 | 10.000 | 8.000 | 1.250 |" in text
    assert "`python -m other`" in text
    assert "| fp32 | plain 3.000 | 1.020 [1.010, 1.030] | 10% | 0 s | a \\| b |" in text
    assert "| fp32 | - | - | - | 0 s | - |" in text


def test_page_describes_the_machine(row):
    text = page(make(row, surroundings=MACHINE, load_after=0.5))
    assert "- processor: A \\| processor" in text
    assert "- load before: 0.25" in text
    assert "- load after: 0.50" in text
    assert "- governor: unknown" in text


def test_a_trial_says_that_it_means_nothing(row):
    assert "too short for meaningful figures" in page(make(row, trial=True))


def test_a_report_is_read_back_as_it_was(row, session):
    report = make(row.model_copy(update={"sessions": (session(1.0),)}), surroundings=MACHINE)
    assert HarnessReport.model_validate_json(report.model_dump_json()) == report
    assert report.model_dump()["schema_version"] == 1
