import json

import pytest

from compress.errors import ModelError
from compress.publish.checksums import parse_digests, write_digests

GOOD = {"sha256": "0" * 64, "bytes": 1}


@pytest.mark.parametrize(
    "path", ["../up", "/etc/passwd", "a/../b", "a//b", ".hidden", "a/.b", "a\\b", "C:/x", "a/", "", "-rf", "~/x"]
)
def test_paths_that_could_leave_the_folder_are_refused(path):
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
def test_what_is_no_list_of_digests_is_told(content):
    with pytest.raises(ModelError, match="there is not a list of digests"):
        parse_digests(content, "there")


def test_every_file_is_listed_but_the_list(tmp_path):
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"abc")
    (tmp_path / "config.json").write_bytes(b"{}")
    first = write_digests(tmp_path)
    assert sorted(first.files) == ["config.json", "onnx/model.onnx"]
    assert first.files["onnx/model.onnx"].bytes == 3
    assert write_digests(tmp_path) == first
    (tmp_path / "config.json").write_bytes(b"[]")
    assert write_digests(tmp_path).combined != first.combined
