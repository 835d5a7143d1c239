import os
import sys
import tempfile
from pathlib import Path

import pytest

from compress.errors import UsageError
from compress.storage.atomic_write import (
    apply_umask,
    atomic_copy_folder,
    atomic_replace_folder,
    atomic_write,
    copy_content,
    new_folder,
)


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


def test_private_scratch_becomes_a_folder_of_the_usual_modes(tmp_path):
    before = os.umask(0o027)
    try:
        scratch = Path(tempfile.mkdtemp(dir=tmp_path))
        (scratch / "below").mkdir(mode=0o700)
        (scratch / "below" / "file").touch(mode=0o600)
        (scratch / "script").touch(mode=0o700)
        copy_content(scratch, tmp_path / "copied")
        atomic_copy_folder(scratch, tmp_path / "replaced")
        atomic_replace_folder(scratch, tmp_path / "renamed")
    finally:
        os.umask(before)
    expected = {"": 0o750, "below": 0o750, "below/file": 0o640}
    for name in ("copied", "replaced", "renamed"):
        found = {part: (tmp_path / name / part).stat().st_mode & 0o777 for part in expected}
        assert found == expected, name
    assert (tmp_path / "renamed" / "script").stat().st_mode & 0o777 == 0o740
    assert sorted(path.name for path in (tmp_path / "renamed").iterdir()) == ["below", "script"]


def test_wider_modes_stay(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o666)
    apply_umask(tmp_path, [tmp_path / "file"])
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666


def test_a_folder_that_a_killed_process_of_this_number_left_is_in_nobodys_way(tmp_path):
    left = tmp_path / f".copy.new-{os.getpid()}-0"
    left.mkdir()
    os.utime(left, (1, 1))
    with new_folder(tmp_path / "copy") as work:
        (work / "file").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_the_folder_one_is_in_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "below")
    for target in (Path(), tmp_path / "here"):
        with pytest.raises(UsageError, match="is the folder you are in"), new_folder(target):
            pass
    with new_folder(Path("copy")) as work:
        (work / "file").touch()
    assert Path("copy/file").is_file()
