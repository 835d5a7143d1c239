"""Texts longer than a window through a complete run: in windows, or truncated and reported as such."""

from pathlib import Path

import pytest

import compress
from tests.conftest import WEATHER, write_tiny_recipe

FILLER = "no word of what comes next is here, "
"""More pieces than a window has: the tiny model's pieces are letters."""


def write_long_rows(path: Path, count: int) -> None:
    lines = ["text,label"]
    for number in range(count):
        label = ("sunny", "rainy")[number % 2]
        lines.append(f'"{FILLER * (number % 3)}{WEATHER[label][number % 4]}",{label}')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("long", "left_out"), [("mean", []), ("max", ["prune=null", "quantize=null"]), ("attention", ["prune=null"])]
)
def test_windows_run_end_to_end(long: str, left_out: list[str], tmp_path: Path) -> None:
    recipe = write_tiny_recipe(tmp_path)
    for role, count in (("train", 120), ("test", 60)):
        write_long_rows(tmp_path / f"{role}.csv", count)
    overrides = [f"task.long={long}", "task.max_windows=2", *left_out]
    report = compress.run(recipe, overrides=overrides, runs=tmp_path / "runs")
    assert [row.reason for row in report.rows if row.status != "ok"] == []
    # Two fillers take more than two windows of 32 letters, of which a third is shared.
    assert report.data.truncated["test"] == pytest.approx(1 / 3, abs=0.05)
    assert report.data.truncated["train"] == pytest.approx(1 / 3, abs=0.05)
    assert "were truncated at 2 windows of 32 word pieces" in " ".join(report.remarks)
    [answer] = compress.open(tmp_path / "runs" / "tiny" / "winner" / "cpu").predict([FILLER * 2 + "sun"])
    assert answer["label"] in WEATHER


@pytest.mark.slow
def test_report_has_the_truncated_share_of_each_role(tmp_path: Path) -> None:
    recipe = write_tiny_recipe(tmp_path)
    for role, count in (("train", 120), ("test", 60)):
        write_long_rows(tmp_path / f"{role}.csv", count)
    report = compress.run(recipe, overrides=["prune=null", "quantize=null"], runs=tmp_path / "runs")
    assert set(report.data.truncated) == {"train", "select", "test"}
    assert report.data.truncated["test"] == pytest.approx(2 / 3)
    page = (tmp_path / "runs" / "tiny" / "report.md").read_text(encoding="utf-8")
    assert "66.7 % of test, at 32 word pieces" in page
