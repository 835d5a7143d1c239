import json

import pytest

from compress.errors import CompressError
from compress.report.report_schema import Report, ReportModel, read_report, write_report
from compress.report.speedup_breakdown import speedup_stages
from tests.report.conftest import apply_gates


def test_a_report_round_trips(make_report, tmp_path):
    report = apply_gates(make_report())
    write_report(tmp_path, report)
    assert read_report(tmp_path) == report
    assert read_report(tmp_path / "report.json") == report


def test_unknown_keys_are_ignored(make_report, tmp_path):
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
        ("{", "cannot be read as a report: it is not JSON"),
        ('{"schema_version": 5}', "schema_version: written by a newer version of compress"),
        ("[]", "cannot be read as a report: the file"),
    ],
)
def test_invalid_reports_are_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    with pytest.raises(CompressError, match=message):
        read_report(tmp_path)


def test_models_follow_their_parents(make_report):
    report = make_report()
    assert [(model.name, model.parent, model.section) for model in report.models] == [
        ("teacher", None, "finetune"),
        ("student", "teacher", "distill"),
        ("pruned", "student", "prune"),
    ]
    assert [model.name for model in report.lineage("student")] == ["teacher", "student"]
    assert report.lineage("nobody") == []


def test_two_students_are_lines_of_their_own(make_report):
    models = (("teacher", None), ("student", "teacher"), ("pruned", "teacher"))
    report = make_report(
        models=tuple(ReportModel(name=name, parent=parent, section="distill") for name, parent in models)
    )
    assert [model.name for model in report.lineage("pruned")] == ["teacher", "pruned"]
    stages = speedup_stages(report, "pruned/onnx-int8", "cpu")
    assert [stage.before.key for stage in stages] == ["teacher/torch-fp32", "teacher/onnx-fp32", "pruned/onnx-fp32"]
