"""`compress verify --measure`: published figures are measured again, and worse ones end with exit code 3."""

import json
import shutil
from pathlib import Path

import pytest

from compress.cli import main
from compress.environment.cpu import Cpu
from compress.model_folder.model_info import read_info
from compress.publish import measured as module
from compress.publish.measured import read_measured, write_measured
from compress.publish.verify import write_digests


@pytest.fixture
def entry(finished_run: Path, tmp_path: Path) -> Path:
    """A published model of the finished run, outside of a zoo."""
    return Path(shutil.copytree(finished_run.parent / "zoo" / "tiny@1", tmp_path / "entry"))


@pytest.fixture
def rows(finished_run: Path) -> str:
    return str(finished_run.parent / "test.csv")


@pytest.fixture(autouse=True)
def short_and_undisturbed(monkeypatch):
    """Timings of two seconds, which count as stable whatever else runs here."""

    whole = module.time_jobs

    def timed(*given, **options):
        return {key: each.model_copy(update={"status": "measured"}) for key, each in whole(*given, **options).items()}

    monkeypatch.setattr(module, "SECONDS", 2.0)
    monkeypatch.setattr(module, "time_jobs", timed)


def claim(entry, **changes):
    """Change what was published of the model."""
    write_measured(entry, read_measured(entry).model_copy(update=changes))
    write_digests(entry)


def verified(capsys, *words, code=0):
    assert main(["verify", *words, "--measure", "--format", "json"]) == code
    shown = capsys.readouterr()
    return json.loads(shown.out)["measured"], shown.err


def scaled(score, factor):
    return score.model_copy(update={name: getattr(score, name) * factor for name in ("value", "low", "high")})


@pytest.mark.slow
def test_scores_and_speed_are_measured_again(entry, rows, capsys):
    published = read_measured(entry)
    claim(entry, p50=scaled(published.p50, 5))  # on a busy machine too it is not slower than that
    measured, _ = verified(capsys, str(entry), "--rows", rows)
    assert measured["score"]["now"]["value"] == pytest.approx(published.score.value)
    assert measured["score"]["not_judged"] is None
    assert measured["speed"]["not_judged"] is None
    assert measured["speed"]["now"]["value"] > 0
    assert measured["row"] == published.row


@pytest.mark.slow
def test_what_is_slower_than_published_is_a_miss(entry, rows, capsys):
    claim(entry, p50=scaled(read_measured(entry).p50, 0.01))
    measured, error = verified(capsys, str(entry), "--rows", rows, code=3)
    assert measured["speed"]["missed"]
    assert "is worse than what was published: p50" in error


@pytest.mark.slow
def test_a_lower_score_is_a_miss(entry, rows, capsys):
    published = read_measured(entry)
    claim(entry, p50=None, score=scaled(published.score, 1.5))
    measured, error = verified(capsys, str(entry), "--rows", rows, code=3)
    assert measured["speed"]["not_judged"] == "none was published"
    assert "is worse than what was published: accuracy" in error


@pytest.mark.slow
def test_speed_is_not_judged_elsewhere(entry, rows, capsys, monkeypatch):
    published = read_measured(entry)
    fast = scaled(published.p50, 0.01)
    claim(entry, p50=fast)
    measured, _ = verified(capsys, str(entry))
    assert "--rows FILE times those" in measured["speed"]["not_judged"]
    assert measured["score"] is None
    claim(entry, p50=fast, versions={**published.versions, "onnxruntime": "1.19.0"})
    measured, _ = verified(capsys, str(entry), "--rows", rows)
    library = read_info(entry).variant.runtime
    if library == "onnxruntime":
        assert measured["speed"]["not_judged"].startswith("onnxruntime 1.19.0, and here")
    claim(entry, p50=fast, versions=published.versions)
    monkeypatch.setattr(module, "describe_cpu", lambda: Cpu("Another CPU", "x86_64", (), 2, 2))
    measured, _ = verified(capsys, str(entry), "--rows", rows)
    assert measured["speed"]["not_judged"].endswith("and here Another CPU")


@pytest.mark.slow
def test_a_disturbed_timing_is_not_judged(entry, rows, capsys, monkeypatch):

    whole = module.time_jobs

    def disturbed(*given, **options):
        changes = {"status": "unstable", "reason": "other work"}
        return {key: each.model_copy(update=changes) for key, each in whole(*given, **options).items()}

    monkeypatch.setattr(module, "time_jobs", disturbed)
    claim(entry, p50=scaled(read_measured(entry).p50, 0.01))
    measured, _ = verified(capsys, str(entry), "--rows", rows)
    assert measured["speed"]["not_judged"] == "an unstable timing (other work)"


@pytest.mark.slow
def test_another_number_of_rows_is_not_judged(entry, rows, tmp_path, capsys):
    claim(entry, p50=None, score=scaled(read_measured(entry).score, 2))
    few = tmp_path / "few.csv"
    few.write_text("".join(Path(rows).read_text().splitlines(keepends=True)[:11]))
    measured, _ = verified(capsys, str(entry), "--rows", str(few))
    assert "rows, and this file has 10" in measured["score"]["not_judged"]


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (None, 2, "there is no file"),
        ("", 1, "empty"),
        ("text,label\n", 1, "no rows"),
        ("text,label\na,stormy\n", 1, "stormy"),
        ("words,label\na,rainy\n", 1, "text"),
    ],
)
def test_bad_rows_are_one_message(content, code, message, entry, tmp_path, capsys):
    file = tmp_path / "rows.csv"
    if content is not None:
        file.write_text(content)
    assert main(["verify", str(entry), "--measure", "--rows", str(file)]) == code
    error = capsys.readouterr().err
    assert message in error
    assert "unexpected failure" not in error


def test_bad_options_are_one_message(entry, capsys):
    assert main(["verify", str(entry), "--rows", "x.csv"]) == 2
    assert "--rows has an effect with --measure only" in capsys.readouterr().err
    (entry / "measured.json").unlink()
    write_digests(entry)
    assert main(["verify", str(entry), "--measure"]) == 1
    assert "has no measured.json, so there is nothing to compare" in capsys.readouterr().err
    (entry / "measured.json").write_text('{"schema_version": 2}')
    write_digests(entry)
    assert main(["verify", str(entry), "--measure"]) == 1
    assert "measured.json cannot be read" in capsys.readouterr().err
