"""Identity of data: contents and order, never paths."""

import gzip

import pytest

from compress.data.loading.data_digest import contents_digest, find_files
from compress.errors import DataError, UsageError
from compress.recipe.task_schema import Data


def digest(**roles):
    return contents_digest(
        Data(**{role: str(path) if not isinstance(path, list) else path for role, path in roles.items()})
    )


def test_paths_do_not_count_contents_do(write, tmp_path):
    one, same, other = write("1.tsv", "x"), write("2.tsv", "x"), write("3.tsv", "y")
    assert digest(train=one, test=other) == digest(train=same, test=other)
    assert digest(train=one, test=other) != digest(train=other, test=one)
    assert digest(train=one) != digest(train=one, select=one)
    assert digest(train=[str(one), str(other)]) != digest(train=[str(other), str(one)])


@pytest.mark.parametrize("packed", [False, True])
def test_the_whole_file_is_decoded(write, packed):
    content = "text,label\n" + 300_000 * "fine,a\n" + "café,b\n"

    def file(name, encoding):
        raw = content.encode(encoding)
        return write(f"{name}.csv.gz" if packed else f"{name}.csv", gzip.compress(raw) if packed else raw)

    latin, utf16 = file("latin", "latin-1"), file("utf16", "utf-16")
    with pytest.raises(DataError, match=r"line 300002: byte 0xe9 at character 4 is not utf-8") as error:
        digest(train=latin)
    assert "task.data.encoding" in error.value.hint
    assert "compress init --encoding" in error.value.hint
    with pytest.raises(DataError, match="is not utf-8") as error:
        digest(train=utf16)
    assert "utf-16, as its first bytes look" in error.value.hint
    digest(train=latin, encoding="latin-1")
    digest(train=utf16, encoding="utf-16")
    with pytest.raises(DataError, match="NUL byte") as error:
        digest(train=write("n.csv", b"a\0b\n"))
    assert "utf-16" in error.value.hint


def test_hub_sets_are_known_by_name_revision_and_splits():
    base = digest(hub="a/b", train="train")
    assert base == digest(hub="a/b", train="train", revision="main")
    assert (
        len({base, digest(hub="a/c", train="train"), digest(hub="a/b", train="t"), digest(hub="a/b", revision="1")})
        == 4
    )


def test_builtin_sets_are_known_by_their_rows(tmp_path, monkeypatch):
    """Another version or build of a library that has the same sentences changes nothing."""
    libraries = {"garden": tmp_path / "garden"}
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("compress.data.loading.quickstart_dataset.package_roots", lambda name: libraries)
    libraries["garden"].mkdir()
    module = libraries["garden"] / "owls.py"
    module.write_text('"""Owls are kept here. They sleep by day."""')
    first = digest(builtin="sentence_starts")
    module.write_text(module.read_text() + "\nVERSION = 2\n")
    assert digest(builtin="sentence_starts") == first
    module.write_text('"""Owls are kept here. They hunt by night."""')
    assert digest(builtin="sentence_starts") != first


def test_unknown_builtin_set():
    with pytest.raises(UsageError, match="did you mean sentence_starts"):
        digest(builtin="sentence_start")


def test_builtin_set_without_its_sources(monkeypatch):
    from importlib import metadata

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", absent)
    with pytest.raises(DataError, match="not installed: networkx") as fault:
        digest(builtin="sentence_starts")
    assert "train" in fault.value.hint


def test_missing_files_name_the_nearest(write, tmp_path):
    write("train.tsv", "x")
    with pytest.raises(DataError, match=r"task\.data\.train.*did you mean .+train\.tsv"):
        find_files(Data(train=str(tmp_path / "trian.tsv")))
    with pytest.raises(DataError, match=r"no folder .*nowhere either"):
        find_files(Data(test=str(tmp_path / "nowhere" / "a.tsv")))
    with pytest.raises(DataError, match="is a folder"):
        find_files(Data(select=str(tmp_path)))


def test_a_home_of_no_user_is_a_file_that_does_not_exist():
    with pytest.raises(DataError, match=r"task\.data\.train: there is no file ~nobody-here/a\.csv"):
        find_files(Data(train="~nobody-here/a.csv"))
