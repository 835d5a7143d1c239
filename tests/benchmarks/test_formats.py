"""The comparison of formats: its page and the table in the docs on made results, and one real run on a tiny encoder."""

from pathlib import Path

import pytest

from benchmarks.defaults.real_sets import SETS, RealSet
from benchmarks.formats import __main__ as command
from benchmarks.formats.formats_page import BEGIN, END, SESSIONS, docs_block, page, write_docs
from benchmarks.formats.formats_results import Entry, FormatsReport
from benchmarks.int8 import int8_files
from compress.errors import CompressError
from compress.formats import EXPORTS
from compress.measure.machine_snapshot import snapshot_machine
from compress.variants import VARIANTS
from tests.conftest import make_tiny

ROOT = Path(__file__).resolve().parents[2]
OWN, LONG = SESSIONS.values()


def report(*entries):
    facts = {"begun_at": "2026-11-23", "made_by": "compress", "command": "python -m benchmarks.formats --rows 8"}
    return FormatsReport(**facts, rows=8, entries=entries, surroundings=snapshot_machine())


FULL = Entry(
    variant="onnx-int8",
    format="onnx",
    precision="int8",
    megabytes=8.31,
    score=0.89,
    agreement=0.985,
    milliseconds={OWN: 1.234, LONG: 9.876},
    load_seconds=0.061,
    memory_megabytes=98.4,
)
ABSENT = Entry(variant="litert-fp32", format="litert", precision="fp32", reason="not installed: litert (extra litert)")


def test_the_page_has_every_figure_and_every_reason():
    text = page(report(FULL, ABSENT))
    assert "| onnx-int8 | 1.23 | 9.88 | 0.06 | 8.3 | 98 | 89.0 | 98.5 % | - |" in text
    assert "| litert-fp32 | - | - | - | - | - | - | - | not installed: litert (extra litert) |" in text


def test_the_docs_get_the_same_table(tmp_path):
    file = tmp_path / "exports.md"
    file.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        write_docs(report(FULL), file)
        text = file.read_text()
        assert text.startswith("before\n")
        assert text.endswith("after\n")
        assert "old" not in text
        assert text.count("| onnx-int8 |") == 1
    file.write_text("no marks")
    with pytest.raises(CompressError, match="to write the table between"):
        write_docs(report(FULL), file)


def test_the_docs_have_the_table_of_the_stored_report():
    text = (ROOT / command.DOCS).read_text(encoding="utf-8")
    stored = ROOT / command.REPORT / "report.json"
    if not stored.is_file():
        assert "Not measured yet." in text
        return
    measured = FormatsReport.model_validate_json(stored.read_text(encoding="utf-8"))
    assert not measured.trial
    assert docs_block(measured) in text


def test_every_format_is_compared_once_in_each_precision():
    compared = list(command.compared_variants())
    keys = [(variant.format, variant.precision) for variant in compared]
    assert len(keys) == len(set(keys))
    on_cpu = {each.format for each in VARIANTS.values() if each.builder and "cpu" in each.devices}
    assert {form for form, _ in keys} == on_cpu & set(EXPORTS)


def test_a_variant_that_is_not_installed_says_what_is_missing(monkeypatch):
    variant = VARIANTS["openvino-fp32"].model_copy(update={"build_modules": {"no_such_module": "openvino"}})
    with pytest.raises(CompressError, match=r"not installed: .*no_such_module \(extra openvino\)"):
        command.require_installed(variant)


@pytest.mark.slow
def test_it_runs_on_a_tiny_encoder(tmp_path, monkeypatch, tiny_folder):
    lines = [f"the film is {('great', 'dull')[row % 2]} {'so ' * (row % 5)},{row % 2}" for row in range(80)]
    for role in ("train", "test"):
        (tmp_path / f"{role}.csv").write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    task = {"name": "sst2", "kind": "classification", "text": ["text"], "label": "label", "max_length": 128}
    monkeypatch.setenv("COMPRESS_DATA", str(tmp_path))
    monkeypatch.setitem(SETS, "sst2", RealSet({"train": "train.csv", "test": "test.csv"}, task))
    folder = tiny_folder(make_tiny("bert", max_position_embeddings=128))
    monkeypatch.setitem(int8_files.RECIPE, "teacher", str(folder))
    assert command.main(["--trial", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]) == 0
    stored = FormatsReport.model_validate_json((tmp_path / "out" / "report.json").read_text())
    measured = {entry.variant: entry for entry in stored.entries}
    assert set(measured["onnx-int8"].milliseconds) == set(SESSIONS.values())
    assert measured["onnx-fp32"].agreement == 1
    assert measured["ort-fp32"].memory_megabytes > 20
    assert all(entry.milliseconds or entry.reason for entry in stored.entries)
