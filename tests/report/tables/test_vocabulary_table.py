"""What pruning a vocabulary kept, as a table."""

from compress.model_folder.model_history import VocabularyInfo
from compress.report.pages.render import render_html, render_markdown
from compress.report.tables.size_tables import vocabulary_table
from tests.report.conftest import apply_gates


def info(**changes):
    changed = {"train": 0.0, "select": 0.085, "test": 0.448}
    return VocabularyInfo(rule="keep 12000", pieces_before=30522, pieces=12000, changed=changed, **changes)


def test_vocabulary_table(make_report):
    given = {"trimmed": info(positions_before=512, positions=128), "other": info()}
    first, second = vocabulary_table(make_report().model_copy(update={"vocabularies": given})).rows
    assert first == {
        "model": "trimmed",
        "kept": "keep 12000",
        "pieces": "30,522 → 12,000",
        "positions": "512 → 128",
        "train tokenized differently": "0.0 %",
        "select tokenized differently": "8.5 %",
        "test tokenized differently": "44.8 %",
    }
    assert second["positions"] == "–"
    assert vocabulary_table(make_report()).rows == ()


def test_pages_show_the_vocabulary(make_report):
    report = apply_gates(make_report().model_copy(update={"vocabularies": {"trimmed": info()}}))
    assert "| trimmed | keep 12000 | 30,522 → 12,000 |" in render_markdown(report)
    assert "<summary>Vocabulary</summary>" in render_html(report)
    assert "Vocabulary" not in render_markdown(apply_gates(make_report()))
