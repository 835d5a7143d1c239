import hashlib

from compress.storage.file_digests import combined_digest, digests, file_digest


def test_a_folder_has_a_digest_for_each_file_in_sorted_order(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("b/c", "a"):
        (tmp_path / name).write_text(name)
    assert digests(tmp_path) == {"a": hashlib.sha256(b"a").hexdigest(), "b/c": file_digest(tmp_path / "b" / "c")}


def test_a_combined_digest_depends_on_names_and_digests_and_not_on_their_order():
    assert combined_digest({"a": "1", "b": "2"}) == combined_digest({"b": "2", "a": "1"})
    assert len({combined_digest(parts) for parts in ({"a": "1"}, {"a": "2"}, {"b": "1"}, {})}) == 4
