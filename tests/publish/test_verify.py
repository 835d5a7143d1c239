"""The check of a published folder before it predicts."""

import json
import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from compress.errors import ModelError, UsageError
from compress.publish import verify as module
from compress.publish.pull import pull
from compress.publish.verify import find_damage, parse_digests, read_digests, verify, write_digests
from compress.storage.atomic_write import _processes

GOOD = {"sha256": "0" * 64, "bytes": 1}


@pytest.mark.parametrize(
    "path",
    [
        "../up",
        "/etc/passwd",
        "a/../b",
        "a//b",
        ".hidden",
        "a/.b",
        "a\\b",
        "C:/x",
        "a/",
        "",
        "-rf",
        "~/x",
        "a\n",
        "a\n/b",
        "a/b\n",
    ],
)
def test_unsafe_paths_are_refused(path):
    content = json.dumps({"schema_version": 1, "files": {path: GOOD}}).encode()
    with pytest.raises(ModelError, match="there is not a list of digests"):
        parse_digests(content, "there")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"files": {}}',
        b'{"schema_version": 2, "files": {"a": {"sha256": "%s", "bytes": 1}}}' % (b"0" * 64),
        b'{"files": {"a": {"sha256": "short", "bytes": 1}}}',
        b'{"files": {"a": {"sha256": "%s", "bytes": -1}}}' % (b"0" * 64),
    ],
)
def test_invalid_lists_are_refused(content):
    with pytest.raises(ModelError, match="there is not a list of digests"):
        parse_digests(content, "there")


def test_every_other_file_is_listed(tmp_path):
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"abc")
    (tmp_path / "config.json").write_bytes(b"{}")
    first = write_digests(tmp_path)
    assert sorted(first.files) == ["config.json", "onnx/model.onnx"]
    assert first.files["onnx/model.onnx"].bytes == 3
    assert write_digests(tmp_path) == first
    (tmp_path / "config.json").write_bytes(b"[]")
    assert write_digests(tmp_path).combined != first.combined


def test_a_list_of_many_digests_is_refused_without_reading_it(tmp_path):
    entry = json.dumps(GOOD)
    files = ",".join(f'"file-{number}": {entry}' for number in range(20_000))
    (tmp_path / "digests.json").write_text(f'{{"files": {{{files}}}}}')
    with pytest.raises(ModelError, match="has more than 1,048,576 bytes"):
        read_digests(tmp_path)


def test_a_list_of_a_newer_version_is_refused():
    content = json.dumps({"schema_version": 2, "files": {"a": GOOD}}).encode()
    with pytest.raises(ModelError, match="written by a newer version of compress"):
        parse_digests(content, "there")


def test_a_path_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(ModelError, match="cannot be read: File name too long"):
        read_digests(tmp_path / ("a" * 300))


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


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_unchanged_entry_verifies(published):
    assert verify(published) == 11


def test_all_faults_are_reported_at_once(published):
    size = (published / "config.json").stat().st_size
    (published / "config.json").write_text("{}")
    model = published / "onnx" / "model.onnx"
    content = bytearray(model.read_bytes())
    content[100] ^= 1
    model.write_bytes(content)
    (published / "tokenizer.json").unlink()
    (published / "pytorch_model.bin").write_bytes(b"sneaked in")
    with pytest.raises(ModelError) as caught:
        verify(published)
    assert f"config.json has 2 bytes, {size} were published" in caught.value.message
    assert "onnx/model.onnx differs from what was published" in caught.value.message
    assert "tokenizer.json is missing" in caught.value.message
    assert "pytorch_model.bin was not published" in caught.value.message


def test_a_link_to_a_file_is_refused(published, tmp_path):
    (tmp_path / "elsewhere").write_bytes((published / "config.json").read_bytes())
    (published / "config.json").unlink()
    (published / "config.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=r"config\.json is a symbolic link"):
        verify(published)


def test_a_link_to_a_folder_is_refused(published, tmp_path):
    (published / "onnx").rename(tmp_path / "elsewhere")
    (published / "onnx").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=r"onnx is a symbolic link"):
        verify(published)


def test_a_folder_without_checksums_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"has no digests\.json"):
        verify(tmp_path)
    with pytest.raises(ModelError) as caught:
        verify(tmp_path)
    assert "compress publish writes one with every entry" in caught.value.hint


@pytest.mark.parametrize("by", ["folder", "address"])
def test_pull_makes_a_complete_copy(by, published, served, tmp_path):
    source = published if by == "folder" else served + "/"
    to = tmp_path / "here" / "copy"
    assert pull(source, to) == to
    assert verify(to) == 11
    assert names_in(to.parent) == ["copy"]
    assert pull(source, to) == to  # a second time changes nothing


def test_pull_into_an_empty_folder(published, tmp_path):
    (tmp_path / "empty").mkdir()
    assert verify(pull(published, tmp_path / "empty")) == 11


def test_pull_refuses_a_folder_with_other_content(published, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="exists and holds something else"):
        pull(published, tmp_path / "mine")
    assert names_in(tmp_path / "mine") == ["thesis.txt"]
    assert not [name for name in names_in(tmp_path) if ".new-" in name]


def test_pull_into_a_published_entry_is_refused(published, original, tmp_path):
    for to in (published / "copy", published / "onnx" / "deeper" / "copy"):
        with pytest.raises(UsageError, match=r"is inside .*films-small@1, which is a published model"):
            pull(original / "films-small@1", to)
    assert verify(published) == 11


def test_pull_to_a_path_that_cannot_be_created_is_refused(published, tmp_path):
    for to in (tmp_path / ("a" * 300), published.parent / "index.json" / "x"):
        with pytest.raises(UsageError, match="cannot be created"):
            pull(published, to)


def test_pull_removes_what_killed_processes_left(published, tmp_path):
    for process in (os.getppid(), 2**22 + 1):
        (tmp_path / f".copy.new-{process}-0-{_processes()}").mkdir()
    before = tmp_path / f".copy.new-{os.getppid()}-1-{_processes()}"  # of a process of the same number, which ended
    before.mkdir()
    os.utime(before, (1, 1))
    pull(published, tmp_path / "copy")
    assert [name for name in names_in(tmp_path) if "copy" in name] == [
        f".copy.new-{os.getppid()}-0-{_processes()}",
        "copy",
    ]


def test_what_another_machine_writes_stays(published, tmp_path):
    begun, left = (tmp_path / f".copy.new-{2**22 + 1}-{number}-another" for number in range(2))
    for folder in (begun, left):
        folder.mkdir()
    os.utime(left, (1, 1))
    pull(published, tmp_path / "copy")
    assert begun.is_dir()
    assert not left.exists()


def edit_digests(published, name, **changes):
    path = published / "digests.json"
    content = json.loads(path.read_text())
    content["files"][name].update(changes)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("changes", [{"sha256": "1" * 64}, {"bytes": 10}, {"bytes": 10**9}])
def test_a_copy_that_differs_is_removed(published, served, tmp_path, changes):
    edit_digests(published, "onnx/model.onnx", **changes)
    for source in (published, served):
        with pytest.raises(ModelError, match=r"its digest is another one than the record's|published"):
            pull(source, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
        assert not [name for name in names_in(tmp_path) if ".new-" in name]


def test_a_missing_file_is_named(published, served, tmp_path):
    (published / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be downloaded: HTTP Error 404"):
        pull(served, tmp_path / "copy")
    with pytest.raises(ModelError, match=r"there is no .*tokenizer\.json"):
        pull(published, tmp_path / "copy")


def test_an_unreachable_server_is_reported(tmp_path):
    with pytest.raises(ModelError, match="cannot be downloaded"):
        pull("http://127.0.0.1:9/model", tmp_path / "copy")


def test_listed_paths_cannot_leave_the_folder(published, served, tmp_path):
    path = published / "digests.json"
    content = json.loads(path.read_text())
    content["files"]["../escaped"] = content["files"]["config.json"]
    path.write_text(json.dumps(content))
    for source in (published, served):
        with pytest.raises(ModelError, match="String should match pattern"):
            pull(source, tmp_path / "copy")


@pytest.mark.parametrize("source", ["zoo/nothing/here", "nobodys://host/model", "nothing"])
def test_unknown_sources_are_refused(tmp_path, source):
    with pytest.raises(UsageError, match=r"no published model at|is no place of a zoo: Protocol not known: nobodys"):
        pull(source, tmp_path / "copy")


def test_pull_from_the_hub(published, tmp_path, monkeypatch):
    def download(name, *, revision, local_dir):
        assert (name, revision) == ("someone/films", "v1")
        shutil.copytree(published, local_dir, dirs_exist_ok=True)
        (local_dir / ".gitattributes").write_text("")
        (local_dir / ".cache").mkdir()

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert verify(pull("someone/films@v1", tmp_path / "copy")) == 11


def test_an_unreachable_hub_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="someone/films cannot be downloaded from the hub"):
        pull("someone/films", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_pull_and_verify_need_no_heavy_libraries():
    blocked = "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'datasets', 'huggingface_hub']))"
    code = f"{blocked}; from compress.publish.pull import pull, verify"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "entry"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"weights")
    (folder / "config.json").write_text("{}")
    write_digests(folder)
    return folder


def test_intact_folder_and_folder_without_digests(folder, tmp_path):
    assert find_damage(folder) is None
    assert find_damage(tmp_path) is None


def test_checksums_are_computed_once_per_file(folder, monkeypatch):
    assert find_damage(folder) is None
    monkeypatch.setattr(module, "file_digest", lambda path: pytest.fail("read again"))
    assert find_damage(folder) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"weigh", "model.onnx has 5 bytes, 7 were published"), (b"Weights", "differs"), (None, "is missing")],
)
def test_changed_file_is_described(folder, content, message):
    assert find_damage(folder) is None
    path = folder / "model.onnx"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert message in find_damage(folder)


def test_unreadable_cache_and_list_of_digests(folder, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "verified.json").write_text("[")
    assert find_damage(folder) is None
    (folder / "digests.json").write_text(json.dumps({"files": {"../x": {}}}))
    assert "not a list of digests" in find_damage(folder)


def test_links_are_damage(folder, tmp_path):
    (folder / "model.onnx").rename(tmp_path / "elsewhere")
    (folder / "model.onnx").symlink_to(tmp_path / "elsewhere")
    assert find_damage(folder).startswith("model.onnx is a symbolic link")
