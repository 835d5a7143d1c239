"""The benchmark of files of many rows: its table and its page."""

from pathlib import Path

from benchmarks.bulk import ALONE, BulkReport, Rate, page, read_texts, rows_of, write_rows
from benchmarks.report_store import beginning


def report() -> BulkReport:
    rates = (
        Rate(texts="sst2", model="small", how=f"{ALONE}, processes: 2", rows=100, seconds=1.0),
        Rate(texts="sst2", model="small", how="predict --workers 2", rows=300, seconds=2.0, megabytes=50.0),
        Rate(texts="sst2", model="teacher", how="transformers' pipeline, threads: 1", rows=10, seconds=1.0),
    )
    return BulkReport(**beginning("x", trial=False), rates=rates, kills=2, equal=1)


def test_rates_are_shares_of_the_model_alone() -> None:
    alone, ours, pipeline = rows_of(report())
    assert (alone["rows a second"], ours["rows a second"], ours["of the model alone"]) == ("100", "150", "1.50")
    assert pipeline["of the model alone"] is None


def test_the_page_says_how_many_outputs_were_equal() -> None:
    assert "1 of 2 outputs equal" in page(report())


def test_rows_are_the_texts_again_and_again(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.csv", ["a", "b"], 5)
    assert list(read_texts(f"{tmp_path}/rows.csv:text")) == ["a", "b", "a", "b", "a"]
