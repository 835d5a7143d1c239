import json

import pytest

from compress.errors import ModelError
from compress.publish.checksums import parse_digests, read_digests, write_digests

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
