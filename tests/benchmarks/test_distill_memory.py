"""Verdicts from peaks, and generated rows; nothing is trained."""

from pathlib import Path

import pytest

from benchmarks import distill_memory as memory
from benchmarks.distill_memory import GIB, MemoryReport, Peak


def report(*peaks):
    counts = (4000, 400_000)
    measured = [Peak(rows=rows, peak=round(peak * GIB), reason=None) for rows, peak in zip(counts, peaks, strict=False)]
    missing = [Peak(rows=rows) for rows in counts[len(peaks) :]]
    return MemoryReport(begun_at="now", made_by="x", steps=2, threads=1, peaks=(*measured, *missing))


def test_goals_are_met_or_missed():
    assert [line.rsplit(" ", 1)[1] for line in report(2.0, 2.05).verdicts] == ["met", "met"]
    assert [line.rsplit(" ", 1)[1] for line in report(2.6, 2.8).verdicts] == ["missed", "missed"]
    assert report(2.0, 3.0).growth == 1.5


def test_without_all_peaks_growth_is_not_measured():
    result = report(2.0)
    assert result.growth is None
    assert result.verdicts[1].endswith("not measured")
    assert "| 400,000 | - | - | - | not run |" in memory.page(result)


def test_the_command_line(capsys):
    assert memory.parse([]).rows == (4000, 400_000)
    assert memory.parse(["--trial"]).out is None
    assert memory.parse(["--rows", "64,128"]).out == Path("reports/distill_memory")
    with pytest.raises(SystemExit):
        memory.parse(["--rows", "1"])
    assert "32 rows or more" in capsys.readouterr().err


def test_generated_rows_are_reproducible():
    rows = list(memory.generate_rows(["one", "two"], 3, "train"))
    assert rows == list(memory.generate_rows(["one", "two"], 3, "train"))
    assert [len(row["text"].split()) for row in rows] == [126, 126, 126]
    assert {row["label"] for row in rows} == {"no", "yes"}


@pytest.mark.slow
def test_a_process_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "make_data", lambda work, count: None)
    monkeypatch.setattr(memory, "STATUS", Path(__file__))
    peak = memory.one_process(tmp_path, 64, 1, memory.CpuPlacement(1, None), memory.Console("quiet"))
    assert peak.peak is None
    assert peak.reason.startswith("not run: ")


@pytest.mark.skipif(not memory.STATUS.is_file(), reason="only Linux reports a process's peak")
def test_the_peak_is_at_least_what_is_there_now():
    assert memory.status("VmHWM") >= memory.status("RssAnon") > 0
