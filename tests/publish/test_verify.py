"""Copies by folder and by a real server on this machine; nothing leaves it."""

import json
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from compress.errors import ModelError, UsageError
from compress.publish.pull import pull
from compress.publish.verify import verify


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def served(published):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=published.parent)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/{published.name}"
        server.shutdown()
        thread.join()


def beside(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_published_verifies(published):
    assert verify(published) == 8


def test_all_faults_are_told_at_once(published):
    (published / "config.json").write_text("{}")
    model = published / "onnx" / "model.onnx"
    content = bytearray(model.read_bytes())
    content[100] ^= 1
    model.write_bytes(content)
    (published / "tokenizer.json").unlink()
    (published / "pytorch_model.bin").write_bytes(b"sneaked in")
    with pytest.raises(ModelError) as caught:
        verify(published)
    assert "config.json has 2 bytes, 41 were published" in caught.value.message
    assert "onnx/model.onnx differs from what was published" in caught.value.message
    assert "tokenizer.json is missing" in caught.value.message
    assert "pytorch_model.bin was not published" in caught.value.message


def test_a_link_is_no_file(published, tmp_path):
    (tmp_path / "elsewhere").write_bytes((published / "config.json").read_bytes())
    (published / "config.json").unlink()
    (published / "config.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=r"config\.json is a symbolic link"):
        verify(published)


def test_nothing_to_check_against(tmp_path):
    with pytest.raises(ModelError, match=r"has no digests\.json"):
        verify(tmp_path)
    with pytest.raises(ModelError) as caught:
        verify(tmp_path)
    assert "compress publish writes one with every entry" in caught.value.hint


@pytest.mark.parametrize("by", ["folder", "address"])
def test_pull_brings_a_whole_copy(by, published, served, tmp_path):
    source = published if by == "folder" else served + "/"
    to = tmp_path / "here" / "copy"
    assert pull(source, to) == to
    assert verify(to) == 8
    assert beside(to.parent) == ["copy"]
    assert pull(source, to) == to  # a second time changes nothing


def test_pull_into_an_empty_folder(published, tmp_path):
    (tmp_path / "empty").mkdir()
    assert verify(pull(published, tmp_path / "empty")) == 8


def test_pull_leaves_what_is_there(published, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="exists and holds something else"):
        pull(published, tmp_path / "mine")
    assert beside(tmp_path / "mine") == ["thesis.txt"]
    assert not [name for name in beside(tmp_path) if "pull" in name]


def edit_digests(published, name, **changes):
    path = published / "digests.json"
    content = json.loads(path.read_text())
    content["files"][name].update(changes)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("changes", [{"sha256": "1" * 64}, {"bytes": 10}, {"bytes": 10**9}])
def test_a_copy_that_differs_is_not_kept(published, served, tmp_path, changes):
    edit_digests(published, "onnx/model.onnx", **changes)
    for source in (published, served):
        with pytest.raises(ModelError, match="published"):
            pull(source, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
        assert not [name for name in beside(tmp_path) if "pull" in name]


def test_a_server_without_the_file(published, served, tmp_path):
    (published / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json: the server answered 404"):
        pull(served, tmp_path / "copy")
    with pytest.raises(ModelError, match=r"lacks tokenizer\.json"):
        pull(published, tmp_path / "copy")


def test_a_server_that_is_not_there(tmp_path):
    with pytest.raises(ModelError, match="cannot be downloaded"):
        pull("http://127.0.0.1:9/model", tmp_path / "copy")


def test_a_path_in_the_list_cannot_lead_out(published, served, tmp_path):
    path = published / "digests.json"
    content = json.loads(path.read_text())
    content["files"]["../escaped"] = content["files"]["config.json"]
    path.write_text(json.dumps(content))
    for source in (published, served):
        with pytest.raises(ModelError, match="not a plain relative path"):
            pull(source, tmp_path / "copy")


@pytest.mark.parametrize("source", ["zoo/nothing/here", "ftp://host/model", "nothing"])
def test_what_names_no_model(tmp_path, source):
    with pytest.raises(UsageError, match="no published model at"):
        pull(source, tmp_path / "copy")


def test_from_the_hub(published, tmp_path, monkeypatch):
    def bring(name, *, revision, local_dir):
        assert (name, revision) == ("someone/films", "v1")
        shutil.copytree(published, local_dir, dirs_exist_ok=True)
        (local_dir / ".gitattributes").write_text("")
        (local_dir / ".cache").mkdir()

    monkeypatch.setattr("huggingface_hub.snapshot_download", bring)
    assert verify(pull("someone/films@v1", tmp_path / "copy")) == 8


def test_the_hub_cannot_be_reached(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="someone/films cannot be downloaded from the hub"):
        pull("someone/films", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_it_needs_nothing_heavy():
    blocked = "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'datasets', 'huggingface_hub']))"
    code = f"{blocked}; from compress.publish.pull import pull, verify"
    subprocess.run([sys.executable, "-c", code], check=True)
