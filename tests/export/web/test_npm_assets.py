"""npm packages: from a folder, from the cache, from npm, and every way in which that fails."""

import base64
import hashlib
import io
import os
import tarfile

import pytest

from compress.errors import CompressError
from compress.export.web import npm_assets
from compress.export.web.npm_assets import PACKAGES, NpmPackage, archive_folder, unpack_assets
from compress.variants import missing_programs


def archive(content=b"script"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as opened:
        member = tarfile.TarInfo("package/dist/script.mjs")
        member.size = len(content)
        opened.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.fixture
def content(monkeypatch, tmp_path):
    """The archive of the only package there is; the cache is empty, and no npm is installed."""
    made = archive()
    integrity = base64.b64encode(hashlib.sha512(made).digest()).decode()
    package = NpmPackage("@owner/script", "1.2.3", integrity, "MIT", {"dist/script.mjs": "runtime/script.js"})
    monkeypatch.setattr(npm_assets, "PACKAGES", (package,))
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return made


@pytest.fixture
def install_npm(tmp_path):
    """Installs a program called npm: ``install_npm("exit 1")``."""

    def install(script):
        (tmp_path / "bin").mkdir(exist_ok=True)
        program = tmp_path / "bin" / "npm"
        program.write_text(f"#!/bin/sh\nPATH={os.defpath}\n{script}\n")
        program.chmod(0o755)

    return install


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_packages_are_pinned_by_version_and_digest():
    for package in PACKAGES:
        assert package.version.count(".") == 2
        assert len(base64.b64decode(package.integrity)) == 64
    assert [package.archive for package in PACKAGES] == [
        "onnxruntime-web-1.30.0.tgz",
        "huggingface-tokenizers-0.2.0.tgz",
    ]


def test_files_come_from_the_folder_that_is_named(content, work, tmp_path):
    (tmp_path / "owner-script-1.2.3.tgz").write_bytes(content)
    unpack_assets(work, tmp_path)
    assert (work / "runtime" / "script.js").read_bytes() == b"script"
    assert not archive_folder().exists()


def test_npm_downloads_once(content, work, tmp_path, install_npm):
    (tmp_path / "package.tgz").write_bytes(content)
    install_npm(f'echo "$@" > {tmp_path}/arguments\ncp {tmp_path}/package.tgz owner-script-1.2.3.tgz')
    unpack_assets(work)
    assert "pack @owner/script@1.2.3 --ignore-scripts" in (tmp_path / "arguments").read_text()
    install_npm("exit 1")
    unpack_assets(work)
    assert (work / "runtime" / "script.js").read_bytes() == b"script"


def test_npm_is_needed_where_nothing_is_cached_and_no_folder_is_named(content, tmp_path):
    assert missing_programs("web") == ["node", "npm"]
    assert missing_programs("web", {"assets": None}) == ["node", "npm"]
    assert missing_programs("web", {"assets": tmp_path}) == ["node"]
    archive_folder().mkdir(parents=True)
    (archive_folder() / "owner-script-1.2.3.tgz").write_bytes(content)
    assert missing_programs("web") == ["node"]


def test_a_damaged_cache_is_filled_again(content, work, tmp_path, install_npm):
    archive_folder().mkdir(parents=True)
    (archive_folder() / "owner-script-1.2.3.tgz").write_bytes(content[:-1])
    (tmp_path / "package.tgz").write_bytes(content)
    install_npm(f"cp {tmp_path}/package.tgz owner-script-1.2.3.tgz")
    unpack_assets(work)
    assert (work / "runtime" / "script.js").read_bytes() == b"script"


def assert_fails(work, expected, assets=None):
    with pytest.raises(CompressError, match=expected):
        unpack_assets(work, assets)
    assert list(work.iterdir()) == []
    assert not archive_folder().exists()


def test_a_folder_without_the_archive(content, work, tmp_path):
    assert_fails(work, r"holds no owner-script-1\.2\.3\.tgz", tmp_path)


def test_an_archive_with_another_digest(content, work, tmp_path):
    (tmp_path / "owner-script-1.2.3.tgz").write_bytes(archive(b"other"))
    assert_fails(work, r"is not @owner/script 1\.2\.3: its sha512 is", tmp_path)


def test_no_npm(content, work):
    assert_fails(work, r"npm is needed to download @owner/script@1\.2\.3, and is not installed")


def test_no_network(content, work, install_npm):
    install_npm("echo 'npm error code ENOTFOUND\nnpm error request to https://registry failed' >&2; exit 1")
    assert_fails(work, "could not download @owner/script@1.2.3: request to https://registry failed")


def test_another_digest_from_npm(content, work, tmp_path, install_npm):
    (tmp_path / "package.tgz").write_bytes(archive(b"other"))
    install_npm(f"cp {tmp_path}/package.tgz owner-script-1.2.3.tgz")
    assert_fails(work, "its sha512 is")
