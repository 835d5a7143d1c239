import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from compress.errors import CompressError, ModelError, UsageError
from compress.model_folder.model_info import read_info, write_info
from compress.publish.local_zoo import is_published, publish_entry, read_index
from compress.publish.push_pull import pull
from compress.publish.verify import verify
from compress.report.report_schema import read_report, write_report
from compress.runtime.text_model import TextModel
from tests.publish.conftest import FOUR_BITS
from tests.report.conftest import apply_gates


def test_an_entry_is_complete_and_predicts(published, winner, report):
    names = {path.relative_to(published).as_posix() for path in published.rglob("*") if path.is_file()}
    assert names == {
        "README.md",
        "compress.json",
        "config.json",
        "digests.json",
        "golden.safetensors",
        "onnx/model.onnx",
        "report/report.html",
        "report/report.json",
        "report/report.md",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    page = (published / "report" / "report.html").read_text(encoding="utf-8").replace("&#34;", '"')
    assert 'compress predict films-small "a text"' in page
    assert "runs/" not in page
    assert verify(published) == 10
    assert read_report(published / "report") == report
    texts = ["good film", "a very bad plot"]
    assert TextModel.open(published).predict(texts) == TextModel.open(winner).predict(texts)


def test_a_winner_of_an_earlier_version_is_published_with_the_task_length(winner, report, tmp_path):
    content = {**json.loads((winner / "tokenizer.json").read_bytes()), "truncation": None}
    (winner / "tokenizer.json").write_text(json.dumps(content))
    (winner / "tokenizer_config.json").write_text('{"max_length": 128, "model_max_length": 512}')
    length = read_info(winner).task.max_length
    entry = publish_entry({"cpu": winner}, report, tmp_path / "zoo", "films")
    settings = json.loads((entry / "tokenizer_config.json").read_bytes())
    assert settings["model_max_length"] == length
    assert "max_length" not in settings
    assert json.loads((entry / "tokenizer.json").read_bytes())["truncation"]["max_length"] == length
    assert "512" in (winner / "tokenizer_config.json").read_text()
    verify(entry)


def test_the_index_lists_existing_entries(published, winner, report):
    zoo = published.parent
    publish_entry({"cpu": winner}, report, zoo, "another")
    index = read_index(zoo)
    assert list(index) == ["another", "films-small"]
    assert index["films-small"]["variant"] == "onnx-int8"
    assert index["films-small"]["score"] == pytest.approx(0.906)
    assert (index["films-small"]["batch_sensitive"], index["films-small"]["scored_batch"]) == (True, None)
    for path in sorted((zoo / "another").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert list(read_index(zoo)) == ["films-small"]


def test_an_entry_is_replaced_as_a_whole(published, winner, report):
    (published / "left over").write_text("from an older version")
    before = read_index(published.parent)["films-small"]["digest"]
    (winner / "config.json").write_text('{"model_type": "bert", "pad_token_id": 0, "more": 1}')
    again = {"winners": {"cpu": winner}, "report": report, "zoo": published.parent, "name": "films-small"}
    with pytest.raises(CompressError) as refused:
        publish_entry(**again)
    assert "films-small holds another result, onnx-int8 (accuracy 0.906, " in refused.value.message
    assert "nothing was replaced" in refused.value.message
    assert refused.value.hint.endswith("--replace, or --name for an entry beside it")
    assert (published / "left over").exists()
    assert publish_entry(**again, replace=True) == published
    assert not (published / "left over").exists()
    assert verify(published) == 10
    assert read_index(published.parent)["films-small"]["digest"] != before
    assert sorted(path.name for path in published.parent.iterdir()) == [".lock", "films-small", "index.json"]


def test_folders_of_others_are_left_as_they_are(winner, report, tmp_path):
    result = tmp_path / "zoo" / "films"
    result.mkdir(parents=True)
    (result / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="was not published by compress; it is left as it is"):
        publish_entry({"cpu": winner}, report, tmp_path / "zoo", "films")
    assert [path.name for path in result.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b", "films\n", "a" * 250])
def test_unsafe_names_are_refused(winner, report, tmp_path, name):
    with pytest.raises(UsageError, match="the name of a published model"):
        publish_entry({"cpu": winner}, report, tmp_path / "zoo", name)
    assert not (tmp_path / "zoo").exists()


def test_a_failure_leaves_the_zoo_unchanged(published, winner, report, monkeypatch):
    before = verify(published)

    def fail(entry):
        raise ModelError("no card today")

    monkeypatch.setattr("compress.publish.local_zoo.model_card", fail)
    with pytest.raises(ModelError, match="no card today"):
        publish_entry({"cpu": winner}, report, published.parent, "films-small")
    assert verify(published) == before
    assert sorted(path.name for path in published.parent.iterdir()) == [".lock", "films-small", "index.json"]


def test_the_folder_must_hold_the_winner(winner, report, tmp_path, make_report):
    info = read_info(winner)
    write_info(winner, info.model_copy(update={"variant": info.variant.model_copy(update={"name": "onnx-fp32"})}))
    with pytest.raises(ModelError, match="holds onnx-fp32; the report's winner on cpu is pruned/onnx-int8"):
        publish_entry({"cpu": winner}, report, tmp_path / "zoo", "films")
    with pytest.raises(UsageError, match="names no winner on target 'cuda'"):
        publish_entry({"cuda": winner}, report, tmp_path / "zoo", "films")
    with pytest.raises(UsageError, match="names no winner"):
        publish_entry({"cpu": winner}, apply_gates(make_report(rows=(), results=())), tmp_path / "zoo", "films")


def test_a_zoo_that_is_a_file_is_refused(winner, report, tmp_path):
    (tmp_path / "zoo").write_text("a file")
    with pytest.raises(UsageError, match="cannot be used as a zoo"):
        publish_entry({"cpu": winner}, report, tmp_path / "zoo", "films")


@pytest.mark.parametrize("content", ["", "[]", '{"models": []}'])
def test_a_broken_index_stops_before_anything_is_written(winner, report, tmp_path, content):
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    (zoo / "index.json").write_text(content)
    with pytest.raises(ModelError, match="is not a zoo's index"):
        publish_entry({"cpu": winner}, report, zoo, "films")
    assert sorted(path.name for path in zoo.iterdir()) == [".lock", "index.json"]


def test_the_index_has_a_schema_version(published):
    assert json.loads((published.parent / "index.json").read_text())["schema_version"] == 1


def test_winners_of_several_targets_share_an_entry(two_winners, two_target_report, tmp_path):
    entry = publish_entry(two_winners, two_target_report, tmp_path / "zoo", "films")
    variant = entry / "variants" / "student-onnx-fp32"
    files = {"README.md", "compress.json", "config.json", "golden.safetensors", "onnx"}
    files |= {"tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in variant.iterdir()} == files
    assert verify(entry) == 17
    texts = ["good film", "a very bad plot"]
    assert TextModel.open(variant).predict(texts) == TextModel.open(two_winners["phone"]).predict(texts)
    assert TextModel.open(entry).predict(texts) == TextModel.open(two_winners["cpu"]).predict(texts)
    indexed = read_index(tmp_path / "zoo")["films"]
    assert (indexed["variant"], indexed["target"]) == ("onnx-int8", "cpu")
    assert [(one["path"], one["targets"], one["batch_sensitive"]) for one in indexed["variants"]] == [
        (".", ["cpu"], True),
        ("variants/student-onnx-fp32", ["phone"], False),
    ]
    card = (entry / "README.md").read_text()
    assert "run each text alone" in card.lower()
    assert "**Batches.**" not in (variant / "README.md").read_text()
    (entry / "variants" / "student-onnx-fp32" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"variants/student-onnx-fp32/config\.json has 2 bytes"):
        verify(entry)


def test_the_root_runs_everywhere_and_a_winner_that_does_not_is_below_variants(four_bit, tmp_path):
    winners, root, report = four_bit
    zoo = tmp_path / "zoo"
    assert not is_published(winners, report, zoo, "films", root)
    entry = publish_entry(winners, report, zoo, "films", root)
    assert is_published(winners, report, zoo, "films", root)
    assert read_info(entry).variant.name == "onnx-fp32"
    assert read_info(entry / "variants" / "pruned-onnx-int8").variant.operators == FOUR_BITS
    assert json.loads((entry / "config.json").read_text())["transformers.js_config"] == {"dtype": "fp32"}
    verify(entry)
    texts = ["good film", "a very bad plot"]
    assert TextModel.open(entry).predict(texts) == TextModel.open(root).predict(texts)
    assert pull(entry, tmp_path / "pulled") == tmp_path / "pulled"
    indexed = read_index(zoo)["films"]
    assert (indexed["variant"], indexed["target"]) == ("onnx-fp32", "cpu")
    assert [(one["path"], one["targets"], one["runs_everywhere"]) for one in indexed["variants"]] == [
        (".", [], True),
        ("variants/pruned-onnx-int8", ["cpu"], False),
    ]


def test_where_nothing_runs_everywhere_the_root_is_the_winner(four_bit, tmp_path):
    winners, _, report = four_bit
    entry = publish_entry(winners, report, tmp_path / "zoo", "films")
    assert read_info(entry).variant.name == "onnx-int8"
    (listed,) = read_index(tmp_path / "zoo")["films"]["variants"]
    assert (listed["path"], listed["runs_everywhere"]) == (".", False)


def test_a_row_that_wins_on_two_targets_is_published_once(two_winners, two_target_report, tmp_path):
    first, second = two_target_report.verdicts
    results = tuple(
        each.model_copy(update={"target": title})
        for each in two_target_report.results
        if each.target == "cpu"
        for title in ("cpu", "phone")
    )
    verdicts = (first, second.model_copy(update={"winner": first.winner}))
    report = two_target_report.model_copy(update={"results": results, "verdicts": verdicts})
    winners = dict.fromkeys(("cpu", "phone"), two_winners["cpu"])
    entry = publish_entry(winners, report, tmp_path / "zoo", "films")
    assert not (entry / "variants").exists()
    (listed,) = read_index(tmp_path / "zoo")["films"]["variants"]
    assert listed["targets"] == ["cpu", "phone"]


def test_an_entry_is_published_only_with_the_same_winners_and_report(two_winners, two_target_report, tmp_path):
    zoo, report = tmp_path / "zoo", two_target_report
    one = {"cpu": two_winners["cpu"]}
    assert not is_published(one, report, zoo, "films")
    publish_entry(one, report, zoo, "films")
    assert is_published(one, report, zoo, "films")
    assert not is_published(two_winners, report, zoo, "films")
    publish_entry(two_winners, report, zoo, "films")
    assert is_published(two_winners, report, zoo, "films")
    assert not is_published(one, report, zoo, "films")
    (zoo / "index.json").unlink()
    assert not is_published(two_winners, report, zoo, "films")
    assert not is_published(two_winners, report.model_copy(update={"created": "later"}), zoo, "films")


@pytest.mark.parametrize("path", ["/dev/null/zoo", "a" * 300])
def test_a_path_that_cannot_be_created_is_refused(winner, report, tmp_path, path):
    with pytest.raises(UsageError, match="cannot be used as a zoo"):
        publish_entry({"cpu": winner}, report, tmp_path / path, "films")


def test_leftovers_of_a_killed_publication_are_removed(published, winner, report):
    zoo = published.parent
    (zoo / f".films-small.new-{2**22 + 1}").mkdir()
    (zoo / f".films-small.old-{2**22 + 1}").mkdir()
    publish_entry({"cpu": winner}, report, zoo, "films-small")
    assert sorted(path.name for path in zoo.iterdir()) == [".lock", "films-small", "index.json"]


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from compress.publish import local_zoo
    from compress.report.report_schema import read_report
    from compress.storage import atomic_write

    module = atomic_write if sys.argv[1] == "atomic_replace_folder" else local_zoo
    original = getattr(module, sys.argv[1])

    def kill(*arguments):
        original(*arguments) if sys.argv[2] == "after" else None
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(module, sys.argv[1], kill)
    winner, report, zoo = map(Path, sys.argv[3:])
    local_zoo.publish_entry({"cpu": winner}, read_report(report), zoo, "films-small")
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["write_digests", "atomic_replace_folder", "_write_index"])
def test_a_kill_leaves_a_valid_entry_and_the_next_publication_succeeds(step, when, published, winner, report, tmp_path):
    zoo = published.parent
    write_report(tmp_path, report)
    arguments = [step, when, winner, tmp_path / "report.json", zoo]
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), *map(str, arguments)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert verify(published) == 10
    publish_entry({"cpu": winner}, report, zoo, "films-small")
    assert verify(published) == 10
    assert sorted(os.listdir(zoo)) == [".lock", "films-small", "index.json"]  # noqa: PTH208
