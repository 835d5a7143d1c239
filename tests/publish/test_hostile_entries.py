"""Entries that were damaged or made to harm: each is refused before anything of it is used, and leaves nothing."""

import hashlib
import json
import random
import shutil

import pytest

from compress.errors import CompressError, ModelError
from compress.publish.places import FolderPlace
from compress.publish.pull import opened, pull
from compress.publish.records import parse_record
from compress.publish.signatures import Signer, trusted_keys
from compress.publish.verify import DIGESTS_FILE, parse_digests, verify, write_digests
from compress.publish.zoo_index import read_index
from tests.publish.conftest import PUBLIC

DAMAGES = 300


def flip(path, chance):
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def cut(path, chance):
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def grow(path, chance):
    path.write_bytes(path.read_bytes() + chance.randbytes(chance.randint(1, 2_000)))


def remove(path, chance):
    path.unlink()


def swap(path, chance):
    """Give the file the content of another one of the entry."""
    entry = next(each for each in path.parents if each.name == "films-small@1")
    files = [each for each in entry.rglob("*") if each.is_file() and each.read_bytes() != path.read_bytes()]
    path.write_bytes(chance.choice(sorted(files)).read_bytes())


def link(path, chance):
    path.rename(path.with_name(f"{path.name}.elsewhere"))
    path.symlink_to(f"{path.name}.elsewhere")


def make_folder(path, chance):
    path.unlink()
    path.mkdir()


def relist(path, chance):
    """Change the file, and list the digest and size that it has now."""
    entry = next(each for each in path.parents if each.name == "films-small@1")
    listed = json.loads((entry / "digests.json").read_bytes())
    grow(path, chance)
    name = path.relative_to(entry).as_posix()
    if name in listed["files"]:
        content = path.read_bytes()
        listed["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        (entry / "digests.json").write_text(json.dumps(listed))


def lie_about_size(path, chance):
    entry = next(each for each in path.parents if each.name == "films-small@1")
    listed = json.loads((entry / "digests.json").read_bytes())
    name = chance.choice(sorted(listed["files"]))
    listed["files"][name]["bytes"] = chance.choice([0, 1, listed["files"][name]["bytes"] - 1, 2**50, -1])
    (entry / "digests.json").write_text(json.dumps(listed))


WAYS = (flip, cut, grow, remove, swap, link, make_folder, relist, lie_about_size)


@pytest.mark.slow
def test_every_random_damage_is_refused(published, tmp_path):
    chance = random.Random(0)
    zoo, accepted = published.parent, []
    whole = shutil.copytree(published, tmp_path / "whole")
    files = sorted(path.relative_to(published) for path in published.rglob("*") if path.is_file())
    for number in range(DAMAGES):
        shutil.rmtree(published)
        shutil.copytree(whole, published)
        way, file = chance.choice(WAYS), chance.choice(files)
        way(published / file, chance)
        try:
            pull(f"{zoo}/films-small@1", tmp_path / "copy")
            accepted.append((number, way.__name__, file))
            shutil.rmtree(tmp_path / "copy")
        except CompressError:
            pass
        assert not (tmp_path / "copy").exists()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "whole", "zoo"][-2:]
    assert accepted == []


@pytest.mark.parametrize(
    "names",
    [
        ["con"],
        ["onnx/NUL.onnx"],
        ["a/com1"],
        ["a."],
        ["a /b"],
        ["a", "A"],
        ["onnx/Model.onnx", "onnx/model.onnx"],
        ["a", "a/b"],
        ["digests.json"],
        ["a\nb"],
        ["a\u2028b"],
        ["a\u202eb"],
        ["x" * 300],
    ],
)
def test_names_that_are_not_safe_on_every_system_are_refused(names):
    files = {name: {"sha256": "0" * 64, "bytes": 1} for name in names}
    with pytest.raises(ModelError, match="there is not a list of digests") as refused:
        parse_digests(json.dumps({"files": files}).encode(), "there")
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../up"},
        {"name": "a\nb"},
        {"version": "1\n2"},
        {"version": "../2"},
        {"digest": "short"},
        {"state": "newest"},
        {"why": "a\nerror: everything is fine"},
        {"task": "\u001b[31mred"},
        {"cpu": "\u202egnp"},
        {"license": "x" * 1_000},
        {"files_bytes": -1},
        {"variants": [{"path": "../elsewhere", "variant": "onnx-int8"}]},
        {"variants": [{"path": "variants/a/../../b", "variant": "onnx-int8"}]},
        {"variants": [{"path": ".", "variant": "onnx\nint8"}]},
        {"published": "yesterday"},
        {"published": "2026-01-01T00:00:00"},
        {"published": "9999-12-31T23:59:59.999999Z"},
        {"variants": [{"path": ".", "variant": "onnx-int8", "p50_ms": float("nan")}]},
        {"variants": [{"path": ".", "variant": "onnx-int8", "bytes": -1}]},
    ],
)
def test_records_that_could_deceive_are_refused(changes, published):
    content = json.loads((published.parent / "films-small@1.json").read_bytes())
    with pytest.raises(ModelError, match="the record is not the record of a published model") as refused:
        parse_record(json.dumps({**content, **changes}).encode(), "the record")
    assert "\n" not in refused.value.message


def test_a_size_beyond_the_disk_is_refused_before_anything_is_read(published, tmp_path):
    entry = published.rename(tmp_path / "without-record")
    path = entry / "digests.json"
    listed = json.loads(path.read_text())
    listed["files"]["onnx/model.onnx"]["bytes"] = 2**60
    path.write_text(json.dumps(listed))
    with pytest.raises(ModelError, match="are free at"):
        pull(entry, tmp_path / "copy")


def test_a_file_that_goes_on_is_left_at_the_size_that_was_published(published, tmp_path, monkeypatch):
    size = (published / "onnx" / "model.onnx").stat().st_size
    with (published / "onnx" / "model.onnx").open("r+b") as stream:
        stream.truncate(1 << 40)  # of which nothing is on the disk
    with pytest.raises(ModelError, match=f"is larger than the {size:,} bytes that were published"):
        pull(published, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_the_folder_of_another_version_is_refused(published, winner, report, publish, tmp_path):
    zoo = published.parent
    (winner / "config.json").write_text('{"model_type": "bert", "pad_token_id": 0, "more": 1}')
    second = publish({"cpu": winner}, report, zoo, "films-small")
    shutil.rmtree(second)
    shutil.copytree(published, second)
    verify(second)  # complete in itself
    with pytest.raises(ModelError, match="is not that of films-small@2: its digest is another one"):
        pull(f"{zoo}/films-small@2", tmp_path / "copy")


def test_a_link_out_of_the_zoo_is_not_followed(published, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes((published / "config.json").read_bytes())
    (published / "config.json").unlink()
    (published / "config.json").symlink_to(secret)
    with pytest.raises(ModelError, match="is a symbolic link"):
        pull(published, tmp_path / "copy")


def test_an_index_that_calls_a_version_otherwise_is_refused(published):
    zoo = published.parent
    content = json.loads((zoo / "index.json").read_text())
    content["versions"] = {"films-small@7": content["versions"]["films-small@1"]}
    (zoo / "index.json").write_text(json.dumps(content))

    class Unlisted(FolderPlace):
        def files(self):
            return None

    with pytest.raises(ModelError, match="lists films-small@1 as 'films-small@7'"):
        read_index(Unlisted(zoo))


def test_hostile_texts_are_escaped_on_the_page(published):
    from compress.publish.zoo_index import write_index

    path = published.parent / "films-small@1.json"
    content = json.loads(path.read_text())
    content["task"] = "<script>alert(1)</script>"
    content["variants"][0]["gate"] = "<b>undecided</b>"
    content["variants"][0]["variant"] = '"><img src=x onerror=alert(1)>'
    path.write_text(json.dumps(content))
    write_index(FolderPlace(published.parent))
    page = (published.parent / "index.html").read_text()
    assert "<script>alert" not in page
    assert "<img" not in page
    assert '<span class="badge">&lt;b&gt;undecided&lt;/b&gt;</span>' in page
    assert "&lt;script&gt;alert(1)" in page


class TestVariants:
    """A variant is pulled with a list of digests of its own, which the entry's list has, and which is no authority."""

    @pytest.fixture
    def forged(self, four_bit, publish, write_key):
        """A signed zoo in which somebody changed a variant, and that variant's own list of digests with it."""
        winners, root, report = four_bit
        entry = publish(winners, report, root=root, signer=Signer(write_key))
        variant = entry / "variants" / "pruned-onnx-int8"
        (variant / "config.json").write_text('{"model_type": "bert", "pad_token_id": 0, "changed": 1}')
        (variant / f"{DIGESTS_FILE}.minisig").unlink()
        write_digests(variant)
        verify(variant)  # complete in itself
        return entry.parent

    @pytest.mark.parametrize("keys", ["", PUBLIC])
    def test_a_forged_list_is_refused(self, keys, forged, tmp_path, monkeypatch):
        pytest.importorskip("cryptography")
        monkeypatch.setenv("COMPRESS_TRUSTED_KEYS", keys)
        with pytest.raises(ModelError, match=r"variants/pruned-onnx-int8/.*(differs from|is larger than)"):
            pull(f"{forged}/films", tmp_path / "copy", keys=trusted_keys())
        with pytest.raises(ModelError, match=r"variants/pruned-onnx-int8/digests\.json differs from"):
            opened(f"{forged}/films")
        assert not (tmp_path / "copy").exists()


def test_a_list_that_changes_between_two_looks_is_taken_once(published, tmp_path, monkeypatch):
    """What is written is what was compared with the record, and not what a place says when it is asked again."""
    asked = []
    whole = FolderPlace.stream

    def stream(self, path, limit):
        if path.endswith("digests.json"):
            asked.append(path)
            if len(asked) > 1:
                yield b"{}"
                return
        yield from whole(self, path, limit)

    monkeypatch.setattr(FolderPlace, "stream", stream)
    assert verify(pull(f"{published.parent}/films-small@1", tmp_path / "copy")) == 11
    assert len(asked) == 1
