import json
import shlex
from pathlib import Path

import pytest
import yaml

from compress.cli import main, predict_commands
from compress.errors import GateMissed
from compress.pipeline.run import read_recipe


def test_no_command_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 2


def test_a_missing_recipe_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(tmp_path / "none.yaml")]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "none.yaml" in output.err
    assert "Traceback" not in output.err


def test_an_unknown_recipe_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "quickstrat"]) == 2
    assert "quickstart" in capsys.readouterr().err


def test_unexpected_failures_are_one_message_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def burst(options: object, console: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(predict_commands, "doctor", burst)
    monkeypatch.delenv("COMPRESS_DEBUG", raising=False)
    assert main(["doctor"]) == 1
    assert "ZeroDivisionError: oh" in capsys.readouterr().err
    monkeypatch.setenv("COMPRESS_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


@pytest.mark.parametrize(("failure", "code"), [(KeyboardInterrupt(), 130), (GateMissed("no"), 3)])
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, failure: BaseException, code: int) -> None:
    def fail(options: object, console: object) -> None:
        raise failure

    monkeypatch.setattr(predict_commands, "doctor", fail)
    assert main(["doctor"]) == code


def test_json_goes_to_stdout_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "teachers", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert "minilm-l6" in {row["name"] for row in rows}


def test_ls_tells_how_texts_can_be_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "perturbations", "--format", "json"]) == 0
    rows = {row["name"]: row["about"] for row in json.loads(capsys.readouterr().out)}
    assert rows["truncation"] == "The first half of the words, at least one."


def test_ls_names_the_nearest_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "teacher"]) == 2
    assert "teachers" in capsys.readouterr().err


TWO_CLASSES = "".join(f"good number {n},5\nbad number {n},1\n" for n in range(20))
"""Rows of a text and a label, enough to be split."""


@pytest.mark.parametrize(
    ("overrides", "problems"),
    [
        ([], []),
        (["task.text=txet"], ["task.text: ", "there is no column 'txet'", "did you mean text?"]),
        (["task.text=txet", "task.label=lable"], ["2 problems", "no column 'txet'", "no column 'lable'"]),
        (["task.slices=[gener]"], ["task.slices: ", "there is no column 'gener'"]),
        (["task.data.corpus=corpus.jsonl"], ["1 problem\n", "task.data: ", "in the label's column, or in one called"]),
        (["task.text=txet", "task.data.headr=false"], ["1 problem\n", "task.data.headr: unknown key"]),
        (["task.label=[]"], ["1 problem\n", "task.label: "]),
    ],
)
def test_columns_that_a_file_does_not_have_are_problems_of_the_recipe(
    overrides: list[str], problems: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    has_corpus = any("corpus" in each for each in overrides)
    kind, text = ("retrieval", "query") if has_corpus else ("classification", "text")
    Path("rows.csv").write_text(f"{text},label\n{TWO_CLASSES}")
    Path("corpus.jsonl").write_text(json.dumps({"body": "a document"}) + "\n")
    columns = f"text: {text}\n  label: label"
    Path("my.yaml").write_text(
        f"task:\n  kind: {kind}\n  {columns}\n  data: {{train: rows.csv, test_share: 0.2}}\nteacher: minilm-l6\n"
    )
    sets = [word for each in overrides for word in ("--set", each)]
    assert main(["plan", "my.yaml", *sets, "--format", "quiet"]) == (2 if problems else 0)
    shown = capsys.readouterr().err
    assert all(problem in shown for problem in problems), shown


class TestInit:
    @pytest.mark.parametrize(
        ("file", "name"),
        [
            ("my reviews.yaml", "my-reviews"),
            ("é.yaml", "e"),
            ("_.yaml", "recipe"),
            ("レビュー2024.yaml", "2024-939e0ad"),
        ],
    )
    def test_any_file_name_gives_a_recipe_that_has_a_name(self, file, name, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert main(["init", file]) == 0
        shown = capsys.readouterr().out
        assert f"compress plan {shlex.quote(file)}" in shown
        assert read_recipe(tmp_path / file).name == name

    def test_writes_a_recipe_that_plans(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(["init", "my.yaml"]) == 0
        assert main(["plan", "my.yaml", "--format", "quiet"]) == 0

    def test_prunes_the_teacher(self, tmp_path: Path) -> None:
        path = tmp_path / "my.yaml"
        assert main(["init", str(path)]) == 0
        content = yaml.safe_load(path.read_text())
        assert content["prune"] == {"to": {"speedup": 2}}
        assert not {"student", "distill"} & set(content)

    def test_distils_and_prunes_the_student_that_is_asked_for(self, tmp_path: Path) -> None:
        path = tmp_path / "my.yaml"
        assert main(["init", str(path), "--student", "third-depth"]) == 0
        content = yaml.safe_load(path.read_text())
        assert content["student"] == "third-depth"
        assert set(content["distill"]) == {"soft_label", "hidden_state", "attention"}
        assert set(content["prune"]) == {"heads", "ffn"}

    def test_prunes_nothing_after_a_student_without_attention(self, tmp_path: Path) -> None:
        path = tmp_path / "my.yaml"
        assert main(["init", str(path), "--student", "static"]) == 0
        content = yaml.safe_load(path.read_text())
        assert content["student"] == "static"
        assert not {"distill", "prune"} & set(content)

    @pytest.mark.parametrize("teacher", ["albert-base", "mobilebert", "modernbert-base"])
    def test_teachers_that_cannot_be_pruned_are_distilled(self, teacher: str, tmp_path: Path) -> None:
        path = tmp_path / "my.yaml"
        assert main(["init", str(path), "--teacher", teacher]) == 0
        content = yaml.safe_load(path.read_text())
        assert content["student"] == "half-depth"
        assert ("attention" in content["distill"]) == (teacher != "modernbert-base")  # its queries are fused
        assert "prune" not in content
        assert main(["plan", str(path), "--format", "quiet"]) == 0  # where only the card is here

    def test_takes_your_own_rows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "rows.csv").write_text("review,stars\n" + TWO_CLASSES)
        assert main(["init", "my.yaml", "--train", "rows.csv", "--text", "review", "--label", "stars"]) == 0
        assert main(["plan", "my.yaml", "--format", "quiet"]) == 0

    @pytest.mark.parametrize("delimiter", [",", ";", "\t"])
    @pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
    def test_takes_rows_in_another_encoding(
        self, tmp_path: Path, encoding: str, delimiter: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path, rows = tmp_path / "my.yaml", tmp_path / "rows.csv"
        content = f"text,label\n{TWO_CLASSES}café,5\n".replace(",", delimiter)
        rows.write_bytes(content.encode(encoding))
        assert main(["init", str(path), "--train", str(rows)]) == 1
        message = capsys.readouterr().err
        assert "is not utf-8" in message
        assert "in compress init --encoding: " in message
        assert main(["init", str(path), "--train", str(rows), "--encoding", encoding]) == 0
        assert main(["plan", str(path), "--format", "quiet"]) == 0
        assert main(["plan", str(path), "--set", "task.data.encoding=utf-8"]) == 1
        assert main(["run", str(path), "--dry-run", "--set", "task.data.encoding=utf-8"]) == 1
        assert capsys.readouterr().err.count("is not utf-8") == 2
        assert main(["init", str(tmp_path / "b.yaml"), "--encoding", encoding]) == 2

    def test_takes_your_own_rows_of_a_named_task(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "rows.csv").write_text(
            "sentence,label\n" + TWO_CLASSES.replace(",1\n", ",0\n").replace(",5\n", ",1\n")
        )
        assert main(["init", "my.yaml", "--task", "sst2", "--train", "rows.csv"]) == 0
        assert main(["plan", "my.yaml", "--format", "quiet"]) == 0

    def test_a_kind_without_rows_asks_for_them(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["init", str(tmp_path / "my.yaml"), "--kind", "ranking"]) == 2
        assert "--train FILE is missing" in capsys.readouterr().err

    def test_looks_for_the_file_and_its_columns(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path, rows = tmp_path / "my.yaml", tmp_path / "rows.csv"
        command = ["init", str(path), "--train", str(rows), "--text", "review"]
        assert main(command) != 0
        assert str(rows) in capsys.readouterr().err
        rows.write_text("text,label\ngood,5\nbad,1\n")
        assert main(command) != 0
        message = capsys.readouterr().err
        assert "there is no column 'review'" in message
        assert "(--text of compress init)" in message
        assert not path.exists()

    @pytest.mark.parametrize("columns", [["--text", "stars", "--label", "stars"], ["--text", "text", "--text", "text"]])
    def test_refuses_columns_with_two_uses(
        self, tmp_path: Path, columns: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        path, rows = tmp_path / "my.yaml", tmp_path / "rows.csv"
        rows.write_text("text,stars\ngood,5\nbad,1\n")
        assert main(["init", str(path), "--train", str(rows), *columns]) == 2
        assert "error: task." in capsys.readouterr().err
        assert not path.exists()

    def test_asks_for_the_range_of_scores(self, tmp_path: Path) -> None:
        path, rows = tmp_path / "my.yaml", tmp_path / "rows.csv"
        rows.write_text("sentence1,sentence2,score\n" + "".join(f"a{n},b,{n / 20}\n" for n in range(20)))
        assert main(["init", str(path), "--kind", "similarity", "--train", str(rows)]) == 0
        assert "\n  range: [0.0, 1.0] " in path.read_text()
        assert main(["plan", str(path), "--format", "quiet"]) == 0

    def test_overwrites_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "my.yaml"
        path.write_text("mine")
        assert main(["init", str(path)]) == 2
        assert path.read_text() == "mine"

    @pytest.mark.parametrize("wrong", [["--task", "sst"], ["--teacher", "minilm"], ["--student", "half"]])
    def test_unknown_names(self, wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["init", str(tmp_path / "my.yaml"), *wrong]) == 2
        assert not (tmp_path / "my.yaml").exists()


class TestBench:
    @pytest.mark.parametrize(
        "wrong",
        [
            ["--target", "gpu"],
            ["--target", "cpu,thread=2"],
            ["--target", "cpu,threads=0"],
            ["--target", "cpu,threads=two"],
            ["--target", "cpu,batch"],
            ["--target", "cpu,length=data"],
            ["--against", "another"],
            ["--grid", "batches=1"],
            ["--callers", "0"],
            ["--budget", "soon"],
            ["--budget", "30s", "--rounds", "5"],
            ["--rounds", "1"],
            ["--seconds", "0"],
            ["--texts", "none.txt"],
            ["--output", "none/bench.json"],
            ["--output", "bench.txt"],
        ],
    )
    def test_bad_usage_is_one_message(
        self, wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["bench", str(tmp_path), *wrong]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.startswith("error: ")
        assert wrong[0].removeprefix("--").split("=")[0] in output.err or "length=data" in output.err

    @pytest.mark.parametrize("format", ["human", "quiet", "json"])
    def test_models_that_are_not_there_get_a_row(
        self, format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["bench", str(tmp_path / "none.onnx"), "--format", format]) == 1
        output = capsys.readouterr()
        assert "there is no file or folder" in output.out
        assert "nothing could be timed" in output.err

    def test_a_way_that_is_none_names_the_nearest(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["bench", f"{tmp_path}:openvno"]) == 2
        assert "did you mean openvino" in capsys.readouterr().err


def test_a_command_that_is_not_there_is_named_with_the_nearest(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["runn", "my.yaml"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("; did you mean run?\n")


@pytest.mark.parametrize(
    ("words", "guess"),
    [
        (["search", "my.yaml", "--buget", "p50=1ms"], "--buget; did you mean --budget?"),
        (["run", "my.yaml", "--buget", "p50=1ms"], "--buget; did you mean --budget of compress search?"),
        (["run", "my.yaml", "--rounds", "3"], "--rounds; did you mean --rounds of compress bench?"),
        (["zoo", "ls", "--langage", "en"], "--langage; did you mean --language?"),
        (["run", "my.yaml", "--qqqq"], "--qqqq"),
    ],
)
def test_an_option_that_is_not_there_is_named_with_the_nearest(words, guess, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"unrecognized arguments: {guess}\n")


@pytest.mark.parametrize("seed", ["-1", "2147483648", "0" * 20 + "9999999999", "one"])
def test_a_seed_is_checked_before_any_work(seed, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["probe", "nowhere", "--task", "surface", "--seed", seed])
    assert ended.value.code == 2
    assert "expected a whole number from 0 to 2147483647" in capsys.readouterr().err


def test_without_a_command_the_help_is_shown(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["compress"])
    for arguments in ([], None):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        shown = capsys.readouterr()
        assert "start here:" in shown.err
        assert shown.out == ""
