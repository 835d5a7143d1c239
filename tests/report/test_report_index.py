import csv

import pytest

from compress.errors import CompressError
from compress.report.pages.render import write_pages
from compress.report.report_index import write_index
from tests.report.conftest import apply_gates, made_report


@pytest.mark.slow
def test_every_measured_target_has_a_line(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        write_pages(tmp_path / name, apply_gates(made_report()))
    assert [path.parent.name for path in write_index(tmp_path)] == ["a", "b"]
    with (tmp_path / "index.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["report"], row["target"]) for row in rows] == [("a", "cpu"), ("b", "cpu")]
    assert rows[0]["winner"] == "pruned/onnx-int8"
    assert float(rows[0]["times_faster"]) == pytest.approx(19, rel=0.05)
    assert float(rows[0]["teacher_score"]) == pytest.approx(0.915)
    page = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "[a](a/report.md)" in page
    assert page.count("\n| [") == 2
    picture = (tmp_path / "a" / "speed.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg ")
    assert 'xmlns="http://www.w3.org/2000/svg"' in picture
    for name in ("teacher/torch-fp32", "teacher/onnx-int8", "student/onnx-int8", "pruned/onnx-int8"):
        assert f">{name}</text>" in picture
    assert "<style>:root" in picture


def test_a_target_without_winner_is_listed_empty(tmp_path):
    (tmp_path / "a").mkdir()
    write_pages(tmp_path / "a", apply_gates(made_report(rows=(), results=())))
    write_index(tmp_path)
    assert "none passed" in (tmp_path / "index.md").read_text(encoding="utf-8")


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(CompressError, match="no folder of reports"):
        write_index(tmp_path / "nothing")


def test_other_reports_are_ignored(tmp_path):
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "report.json").write_text('{"schema_version": 1, "about": "harness", "rows": []}')
    assert write_index(tmp_path) == []
    assert "harness" not in (tmp_path / "index.md").read_text(encoding="utf-8")


def test_the_harness_page_is_linked(tmp_path):
    for name in ("a", "harness"):
        (tmp_path / name).mkdir()
    write_pages(tmp_path / "a", apply_gates(made_report()))
    (tmp_path / "harness" / "report.md").write_text("# Is it right?\n")
    assert [path.parent.name for path in write_index(tmp_path)] == ["a"]
    line = (tmp_path / "index.md").read_text(encoding="utf-8").splitlines()[-1]
    assert line == "How far the harness that timed all this was itself checked: [harness/report.md](harness/report.md)."


def test_an_invalid_report_is_an_error(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "report.json").write_text("{")
    with pytest.raises(CompressError, match="cannot be read as a report"):
        write_index(tmp_path)
