import json

import pytest

from compress.errors import ModelError, UsageError
from compress.model_info import read_info, write_info
from compress.publish.local_zoo import publish_entry, read_index
from compress.publish.verify import verify
from compress.report.report_schema import read_report
from compress.runtime.text_model import TextModel
from compress.select.select_winner import judged


def test_a_published_model_is_whole_and_works(published, winner, report):
    names = {path.relative_to(published).as_posix() for path in published.rglob("*") if path.is_file()}
    assert names == {
        "README.md",
        "compress.json",
        "config.json",
        "digests.json",
        "onnx/model.onnx",
        "report/report.html",
        "report/report.json",
        "report/report.md",
        "tokenizer.json",
    }
    assert verify(published) == 8
    assert read_report(published / "report") == report
    texts = ["good film", "a very bad plot"]
    assert TextModel.open(published).predict(texts) == TextModel.open(winner).predict(texts)


def test_the_zoo_lists_what_it_holds(published, winner, report):
    zoo = published.parent
    publish_entry({"cpu": winner}, report, zoo, "another")
    index = read_index(zoo)
    assert list(index) == ["another", "films-small"]
    assert index["films-small"]["variant"] == "onnx-int8"
    assert index["films-small"]["score"] == pytest.approx(0.906)
    for path in sorted((zoo / "another").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert list(read_index(zoo)) == ["films-small"]


def test_our_own_is_replaced_whole(published, winner, report):
    (published / "left over").write_text("from an older version")
    before = read_index(published.parent)["films-small"]["digest"]
    (winner / "config.json").write_text('{"model_type": "bert", "pad_token_id": 0, "more": 1}')
    assert publish_entry({"cpu": winner}, report, published.parent, "films-small") == published
    assert not (published / "left over").exists()
    assert verify(published) == 8
    assert read_index(published.parent)["films-small"]["digest"] != before
    assert sorted(path.name for path in published.parent.iterdir()) == [".lock", "films-small", "index.json"]


def test_what_is_not_ours_stays(winner, report, tmp_path):
    place = tmp_path / "zoo" / "films"
    place.mkdir(parents=True)
    (place / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="was not published by compress; it is left as it is"):
        publish_entry({"cpu": winner}, report, tmp_path / "zoo", "films")
    assert [path.name for path in place.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b", "films\n", "a" * 250])
def test_names_that_are_no_names(winner, report, tmp_path, name):
    with pytest.raises(UsageError, match="the name of a published model"):
        publish_entry({"cpu": winner}, report, tmp_path / "zoo", name)
    assert not (tmp_path / "zoo").exists()


def test_a_failure_leaves_the_zoo_as_it_was(published, winner, report, monkeypatch):
    before = verify(published)

    def fail(entry):
        raise ModelError("no card today")

    monkeypatch.setattr("compress.publish.local_zoo.model_card", fail)
    with pytest.raises(ModelError, match="no card today"):
        publish_entry({"cpu": winner}, report, published.parent, "films-small")
    assert verify(published) == before
    assert sorted(path.name for path in published.parent.iterdir()) == [".lock", "films-small", "index.json"]


def test_the_folder_must_be_the_winner(winner, report, tmp_path, make_report):
    info = read_info(winner)
    write_info(winner, info.model_copy(update={"variant": info.variant.model_copy(update={"name": "onnx-fp32"})}))
    with pytest.raises(ModelError, match="holds onnx-fp32; the report's winner on cpu is pruned/onnx-int8"):
        publish_entry({"cpu": winner}, report, tmp_path / "zoo", "films")
    with pytest.raises(UsageError, match="names no winner on target 'cuda'"):
        publish_entry({"cuda": winner}, report, tmp_path / "zoo", "films")
    with pytest.raises(UsageError, match="names no winner"):
        publish_entry({"cpu": winner}, judged(make_report(rows=())), tmp_path / "zoo", "films")


def test_a_zoo_that_cannot_be_one(winner, report, tmp_path):
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


def test_the_index_is_kept_with_its_version(published):
    assert json.loads((published.parent / "index.json").read_text())["schema_version"] == 1
