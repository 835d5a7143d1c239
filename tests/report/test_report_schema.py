import json

import pytest

from compress.errors import CompressError
from compress.report.report_schema import Report, read_report, write_report
from compress.select.select_winner import judged


def test_a_report_comes_back_as_it_was(make_report, tmp_path):
    report = judged(make_report())
    write_report(tmp_path, report)
    assert read_report(tmp_path) == report
    assert read_report(tmp_path / "report.json") == report


def test_a_later_version_may_add_keys(make_report, tmp_path):
    written = json.loads(write_report(tmp_path, make_report()).read_text())
    written["added_later"] = 1
    (tmp_path / "report.json").write_text(json.dumps(written))
    assert read_report(tmp_path) == make_report()


def test_rows_are_found_by_key(make_report):
    report: Report = make_report()
    assert report.row("pruned/onnx-int8") is report.rows[-1]
    assert report.row("nobody") is None
    assert report.titles == ("cpu", "cuda")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no report at"),
        ("{", "is not a report of this version: the file: Invalid JSON"),
        ('{"schema_version": 2}', "is not a report of this version: schema_version"),
        ("[]", "is not a report of this version: the file"),
    ],
)
def test_what_is_no_report_is_told(tmp_path, content, message):
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    with pytest.raises(CompressError, match=message):
        read_report(tmp_path)
