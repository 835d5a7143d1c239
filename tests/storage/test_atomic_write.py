import sys
from pathlib import Path

import pytest

from compress.storage.atomic_write import atomic_replace_folder, atomic_write


@pytest.fixture
def folders(tmp_path):
    for name in ("new", "target"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    return tmp_path / "new", tmp_path / "target"


def test_a_failed_write_leaves_the_old_content(tmp_path, monkeypatch):
    atomic_write(tmp_path / "file", "old")

    def fail(descriptor):
        raise OSError("no space")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        atomic_write(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(sys.platform != "linux", reason="the system cannot swap two folders")
def test_a_replaced_folder_exists_at_any_time(folders, monkeypatch):
    def refuse(*paths):
        raise AssertionError("a rename would leave a gap")

    monkeypatch.setattr(Path, "rename", refuse)
    atomic_replace_folder(*folders)
    assert (folders[1] / "file").read_text() == "new"
    assert list(folders[1].parent.iterdir()) == [folders[1]]


def test_a_folder_is_replaced_where_two_cannot_be_swapped(folders, monkeypatch):
    monkeypatch.setattr("compress.storage.atomic_write._exchange", lambda one, other: False)
    atomic_replace_folder(*folders)
    assert (folders[1] / "file").read_text() == "new"
    assert list(folders[1].parent.iterdir()) == [folders[1]]
