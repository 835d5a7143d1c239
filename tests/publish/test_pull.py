"""Which variant is pulled, and what happens to a folder that holds another version."""

import json
import shutil

import pytest

from compress.cli import main
from compress.environment.cpu import Cpu
from compress.errors import UsageError
from compress.model_folder.model_info import read_info
from compress.publish import pull as module
from compress.publish.places import FolderPlace
from compress.publish.pull import opened, pull, read_pulled
from compress.publish.verify import find_damage, verify
from compress.publish.zoo_index import read_index
from compress.runtime.text_model import TextModel


@pytest.fixture
def zoo(four_bit, publish):
    """A version with a root that runs everywhere, and a faster winner that does not."""
    winners, root, report = four_bit
    return publish(winners, report, root=root).parent


def set_record(zoo, **changes):
    """Change what the record says of the variant below `variants/`."""
    path = zoo / "films@1.json"
    content = json.loads(path.read_text())
    content["variants"][1].update(changes)
    path.write_text(json.dumps(content))


class TestVariants:
    def test_the_winner_that_runs_here_is_pulled_as_a_folder_of_its_own(self, zoo, tmp_path):
        to = pull(f"{zoo}/films", tmp_path / "copy")
        assert read_info(to).variant.name == "onnx-int8"
        assert not (to / "variants").exists()
        assert not (to / "digests.json.minisig").exists()
        assert read_pulled(to).variant == "variants/pruned-onnx-int8"
        verify(to)
        assert find_damage(to) is None
        assert TextModel.open(to).predict(["good film"])
        assert opened(f"{zoo}/films") == zoo / "films@1" / "variants" / "pruned-onnx-int8"

    @pytest.mark.parametrize(
        "changes",
        [
            {"instructions": ["no_such_instruction"]},
            {"libraries": {"no-such-library": "1.0"}},
            {"libraries": {"onnxruntime": "99.0"}},
        ],
    )
    def test_one_that_does_not_fit_is_passed_over(self, changes, zoo, tmp_path, monkeypatch):
        monkeypatch.setattr(
            "compress.publish.published_model.describe_cpu", lambda: Cpu("x", "x86_64", ("avx2",), 2, 2)
        )
        set_record(zoo, **changes)
        to = pull(f"{zoo}/films", tmp_path / "copy")
        assert read_info(to).variant.name == "onnx-fp32"
        assert not (to / "variants").exists()
        assert verify(to) == sum(not name.startswith("variants/") for name in module.read_digests(to).files) + 9
        assert opened(f"{zoo}/films") == zoo / "films@1"

    def test_of_several_winners_the_fastest(self, two_winners, two_target_report, publish, tmp_path):
        zoo = publish(two_winners, two_target_report).parent
        for p50, held in ((1e9, "onnx-int8"), (1e-9, "onnx-fp32")):
            set_record(zoo, p50_ms=p50, variant="onnx-fp32")
            assert read_info(opened(f"{zoo}/films")).variant.name == held

    @pytest.mark.parametrize(
        ("wanted", "held"),
        [
            ("root", "onnx-fp32"),
            ("onnx-fp32", "onnx-fp32"),
            ("onnx-int8", "onnx-int8"),
            ("pruned-onnx-int8", "onnx-int8"),
            ("all", "onnx-fp32"),
        ],
    )
    def test_one_is_named(self, wanted, held, zoo, tmp_path):
        to = pull(f"{zoo}/films@1", tmp_path / "copy", variant=wanted)
        assert read_info(to).variant.name == held
        assert (to / "variants").exists() == (wanted == "all")

    def test_an_unknown_one_names_the_others(self, zoo, tmp_path):
        with pytest.raises(
            UsageError, match=r"has no variant 'onnx-int4'; did you mean onnx-int8\? .*pruned-onnx-int8"
        ):
            pull(f"{zoo}/films@1", tmp_path / "copy", variant="onnx-int4")

    def test_a_variant_that_is_missing_in_the_zoo_itself_is_damage(self, zoo):
        shutil.rmtree(zoo / "films@1" / "variants")
        assert main(["verify", str(zoo / "films@1")]) == 1

    def test_a_pulled_variant_that_lacks_a_file_is_damaged(self, zoo, tmp_path):
        to = pull(f"{zoo}/films", tmp_path / "copy", variant="all")
        (to / "variants" / "pruned-onnx-int8" / "config.json").unlink()
        assert main(["verify", str(to)]) == 1


def test_python_opens_versions(zoo):
    import compress

    for address in (f"{zoo}/films", zoo / "films@1"):
        assert compress.open(address).predict(["good film"])


class TestUpdates:
    @pytest.fixture
    def two(self, published, winner, report, publish):
        (winner / "config.json").write_text('{"model_type": "bert", "pad_token_id": 0, "more": 1}')
        publish({"cpu": winner}, report, published.parent, "films-small")
        return published.parent

    def test_over_an_older_version_names_both(self, two, tmp_path, capsys):
        to = str(tmp_path / "copy")
        assert main(["pull", f"{two}/films-small@1", to]) == 0
        assert "holds films-small@1 (root); every file has its published digest" in capsys.readouterr().out
        assert main(["pull", f"{two}/films-small", to]) == 2
        error = capsys.readouterr().err
        assert "holds films-small@1 (root); what comes is films-small@2 (root)" in error
        assert "--update replaces it" in error
        assert read_pulled(tmp_path / "copy").version == "films-small@1"
        assert main(["pull", f"{two}/films-small", to, "--update"]) == 0
        assert read_pulled(tmp_path / "copy").version == "films-small@2"
        assert main(["pull", f"{two}/films-small", to]) == 0  # it is that already
        assert main(["pull", f"{two}/films-small@1", to, "--update"]) == 0  # back again

    def test_a_folder_that_was_changed_is_not_replaced(self, two, tmp_path, capsys):
        to = pull(f"{two}/films-small@1", tmp_path / "copy")
        (to / "config.json").write_text("mine")
        assert main(["pull", f"{two}/films-small", str(to), "--update"]) == 1
        assert "config.json has 4 bytes" in capsys.readouterr().err
        assert (to / "config.json").read_text() == "mine"

    def test_another_model_is_not_replaced(self, two, winner, report, publish, tmp_path, capsys):
        publish({"cpu": winner}, report, two, "topics")
        to = str(pull(f"{two}/films-small@1", tmp_path / "copy"))
        assert main(["pull", f"{two}/topics", to, "--update"]) == 2
        assert "holds films-small@1 (root); what comes is topics@1 (root)" in capsys.readouterr().err

    def test_the_default_folder_has_the_name(self, two, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert main(["pull", f"{two}/films-small@1"]) == 0
        assert (tmp_path / "films-small" / "compress.json").is_file()

    def test_predicting_with_a_withdrawn_version_warns(self, two, capsys):
        assert main(["zoo", "withdraw", f"{two}/films-small@2", "--why", "wrong labels"]) == 0
        capsys.readouterr()
        assert main(["predict", f"{two}/films-small@2", "good film"]) == 0
        assert "films-small@2 was withdrawn: wrong labels" in capsys.readouterr().err
        assert main(["predict", f"{two}/films-small", "good film"]) == 0
        assert "withdrawn" not in capsys.readouterr().err


class TestCommands:
    @pytest.fixture
    def two(self, published, winner, report, publish):
        (winner / "config.json").write_text('{"model_type": "bert", "pad_token_id": 0, "more": 1}')
        publish({"cpu": winner}, report, published.parent, "films-small")
        publish({"cpu": winner}, report, published.parent, "topics", version="v1")
        return str(published.parent)

    def run(self, capsys, *words, code=0):
        assert main(["zoo", *words]) == code
        shown = capsys.readouterr()
        return shown.out + shown.err

    def names(self, capsys, two, *words):
        return [each.split("\t")[0] for each in self.run(capsys, "ls", two, "--format", "quiet", *words).splitlines()]

    def test_the_list_and_its_filters(self, two, capsys):
        newest = ["films-small@2", "topics@v1"]
        assert self.names(capsys, two) == newest
        assert self.names(capsys, two, "--all") == ["films-small@1", *newest]
        record = read_index(FolderPlace(module.Path(two))).records[0]
        size, p50, score = (getattr(record.main, name) for name in ("bytes", "p50_ms", "score"))
        for words, passes in (
            (["--task", record.task], True),
            (["--task", "other"], False),
            (["--kind", record.kind], True),
            (["--kind", "other"], False),
            (["--language", "en"], False),
            (["--max-size", f"{size}"], True),
            (["--max-size", f"{size - 1}"], False),
            (["--max-p50", f"{p50}ms"], True),
            (["--max-p50", f"{p50 / 2}ms"], False),
            (["--min-score", f"{score}"], True),
            (["--min-score", "0.99"], False),
        ):
            assert self.names(capsys, two, *words) == (newest if passes else [])
        assert "has no published model that passes these filters" in self.run(capsys, "ls", two, "--task", "other")

    def test_the_list_as_json(self, two, capsys):
        listed = json.loads(self.run(capsys, "ls", two, "--format", "json"))
        assert [(each["name"], each["version"]) for each in listed] == [("films-small", "2"), ("topics", "v1")]
        assert listed[0]["variants"][0]["p50_ms"] > 0

    def test_one_version(self, two, capsys):
        shown = self.run(capsys, "show", f"{two}/films-small")
        assert "films-small@2" in shown
        assert "runs here" in shown
        assert json.loads(self.run(capsys, "show", f"{two}/films-small@1", "--format", "json"))["version"] == "1"

    def test_what_differs(self, two, capsys):
        shown = self.run(capsys, "diff", f"{two}/films-small@1", f"{two}/films-small@2")
        assert "config.json: differs" in shown
        same = self.run(capsys, "diff", f"{two}/films-small@2", f"{two}/films-small")
        assert "their files are equal" in same
        content = json.loads(
            self.run(capsys, "diff", f"{two}/films-small@1", f"{two}/films-small@2", "--format", "json")
        )
        assert "config.json" in content["changed_files"]

    def test_the_default_place(self, two, capsys, monkeypatch):
        monkeypatch.chdir(module.Path(two).parent)
        assert "films-small@2" in self.run(capsys, "ls")
        assert "films-small@1" in self.run(capsys, "show", "films-small@1")
        assert "is withdrawn: old" in self.run(capsys, "withdraw", "films-small@1", "--why", "old")
        assert "withdrawn: old" in self.run(capsys, "ls", "--all")

    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            (["ls", "nowhere"], 1, "there is no zoo at nowhere"),
            (["show", "nowhere/films"], 1, "there is no published model at nowhere/films"),
            (["show", "{zoo}/film-small"], 1, "has no published model called 'film-small'; did you mean films-small"),
            (["withdraw", "{zoo}/films-small@1", "--why", " "], 2, "--why needs a reason"),
            (["withdraw", "{zoo}/films-small", "--why", "x"], 2, "name the version that is withdrawn"),
            (["show", "{zoo}/films-small@8"], 1, "has no version '8' of films-small"),
        ],
    )
    def test_bad_input_is_one_message(self, words, code, message, two, capsys):
        assert message in self.run(capsys, *(word.format(zoo=two) for word in words), code=code)

    @pytest.mark.parametrize("words", [["ls", "--max-size", "small"], ["ls", "--max-p50", "3"], [], ["nothing"]])
    def test_bad_options_are_usage_errors(self, words, capsys):
        with pytest.raises(SystemExit) as ended:
            main(["zoo", *words])
        assert ended.value.code == 2
