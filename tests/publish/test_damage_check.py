"""The check of a published folder before it predicts."""

import json

import pytest

from compress.publish import damage_check
from compress.publish.checksums import write_digests
from compress.publish.damage_check import find_damage


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
    monkeypatch.setattr(damage_check, "file_digest", lambda path: pytest.fail("read again"))
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
