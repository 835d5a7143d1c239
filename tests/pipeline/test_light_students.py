"""Students without attention through the whole pipeline, beside a transformer and on their own."""

import json
from pathlib import Path

import pytest

import compress
from compress.cli import main
from compress.model_folder.model_info import read_info
from compress.report.report_schema import read_report
from tests.conftest import write_tiny_recipe

LIGHT = "hidden: 16, ngrams: 3, buckets: 100, head_width: 16, epochs: 10, batch_size: 16, learning_rate: 0.03"


@pytest.mark.slow
def test_a_run_makes_all_students_of_one_teacher(tmp_path: Path) -> None:
    recipe, runs = write_tiny_recipe(tmp_path), tmp_path / "runs"
    students = f"student=[{{layers: 1}}, {{kind: static, vocabulary: seen, {LIGHT}}}, {{kind: conv, {LIGHT}}}]"
    command = ["run", str(recipe), "--runs", str(runs), "--format", "quiet", "--set", students]
    assert main([*command, "--set", "quantize={methods: int8, max_drop: 1.0}", "--set", "probe=true"]) == 0
    report = read_report(runs / "tiny")
    assert {row.model for row in report.rows} == {"teacher", "student", "pruned", "static", "conv"}
    assert "failed" not in {row.status for row in report.rows}
    names = {row.variant.name for row in report.rows if row.model == "static"}
    assert {"torch-fp32", "onnx-fp32", "numpy-fp32", "numpy-int8", "numpy-int8-4bit"} >= names >= {"numpy-int8"}
    assert report.makings["static"].start == "what the teacher makes of pieces"
    assert report.vocabularies.keys() == {"static"}
    assert json.loads((runs / "tiny" / "report.json").read_bytes())["recipe"]["student"][1]["kind"] == "static"
    again = [*command, "--set", "quantize={methods: int8, max_drop: 1.0}", "--set", "probe=true"]
    steps = {path.name for path in (runs / ".steps").iterdir()}
    assert main(again) == 0
    assert {path.name for path in (runs / ".steps").iterdir()} == steps


@pytest.fixture(scope="module")
def static_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose only student is static, and wins."""
    folder = tmp_path_factory.mktemp("static")
    recipe = write_tiny_recipe(folder)
    command = ["run", str(recipe), "--runs", str(folder / "runs"), "--format", "quiet", "--set", "prune=null"]
    student = f"student={{kind: static, {LIGHT}}}"
    assert main([*command, "--set", student, "--set", "quantize={methods: int8, max_drop: 1.0}"]) == 0
    return folder


@pytest.mark.slow
def test_the_winner_is_a_static_student(static_run: Path) -> None:
    winner = static_run / "runs" / "tiny" / "winner" / "cpu"
    info = read_info(winner)
    assert (info.shape.family, info.variant.format) == ("static", "numpy")
    assert {path.name for path in winner.iterdir()} >= {"tables.safetensors", "tokenizer.json", "config.json"}
    config = json.loads((winner / "config.json").read_bytes())
    assert (config["model_type"], config["architectures"]) == ("distilbert", ["DistilBertForSequenceClassification"])
    model = compress.open(winner)
    answers = model.predict(["rain and storm on day 3", "sun and blue sky on day 4", "zzz"])
    assert [answer["label"] for answer in answers[:2]] == ["rainy", "sunny"]
    assert main(["verify", str(winner)]) == 0


@pytest.mark.slow
def test_it_is_published_pulled_and_used_in_bulk(static_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zoo, pulled = static_run / "zoo", static_run / "pulled"
    assert main(["pull", str(zoo / "tiny"), str(pulled)]) == 0
    assert read_info(pulled).shape.family == "static"
    out = static_run / "answers.csv"
    texts = static_run / "texts.csv"
    texts.write_text("text\nrain and storm on day 3\nsun and blue sky\n")
    assert main(["predict", str(pulled), "--file", str(texts), "--to", str(out)]) == 0
    assert [line.split(",")[1] for line in out.read_text().splitlines()[1:]] == ["rainy", "sunny"]
    card = next(zoo.rglob("README.md")).read_text(encoding="utf-8")
    assert "static" in card
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "openvino", "ort", "web"])
def test_a_model_folder_exports_to_what_can_hold_it(form: str, static_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    (folder,) = (static_run / "runs" / ".steps").glob("static-*")
    code = main(["export", str(folder), str(tmp_path / form), "--format", form, "--output", "quiet"][:5])
    if form == "web" and code:
        pytest.skip("node or npm packages are missing")
    assert code == 0
    answer = compress.open(tmp_path / form).predict(["rain and storm on day 3"])
    assert answer[0]["label"] == "rainy"


@pytest.mark.slow
def test_a_long_text_and_rows_of_a_batch(static_run: Path) -> None:
    model = compress.open(static_run / "runs" / "tiny" / "winner" / "cpu")
    long, *alone = model.predict(["rain and storm on day 3 " * 20_000, "rain and storm on day 3", "sun"])
    assert long["label"] == alone[0]["label"] == "rainy"
    assert model.predict(["rain and storm on day 3", "sun"]) == alone


@pytest.mark.slow
def test_numpy_is_refused_for_a_transformer(
    static_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(static_run / "teacher"), str(tmp_path / "out"), "--format", "numpy"]) == 1
    assert "numpy is for students without attention" in capsys.readouterr().err
