"""Signatures in minisign's format: made here and checked by minisign, the other way round, and refused."""

import shutil
import subprocess

import pytest

pytest.importorskip("cryptography")

import compress
from compress.cli import main
from compress.errors import ModelError, UsageError
from compress.pipeline.preflight.preflight import absent_models
from compress.pipeline.preflight.recipe_checks import NAMES
from compress.publish.places import open_place
from compress.publish.published_model import PublishedModel, checked_digests
from compress.publish.pull import Pulled, check_folder_signature, checked_model, opened, pull
from compress.publish.signatures import Signer, check_signature, find_signer, read_keys
from compress.publish.verify import DIGESTS_FILE
from compress.recipe.load import parse_recipe
from tests.publish.conftest import PUBLIC

OTHER = "RWRCQ+peX9YtF1FcxJy6PKCfZlscxsubAZaeR66v7gFWxvIwKf3FjszH"

MINISIGN = shutil.which("minisign")


@pytest.fixture
def key(write_key):
    return write_key


@pytest.fixture
def public(tmp_path):
    path = tmp_path / "films.pub"
    path.write_text(f"untrusted comment: minisign public key\n{PUBLIC}\n")
    return path


@pytest.fixture
def signed(winner, report, publish, key):
    """A zoo with one signed version."""
    return publish({"cpu": winner}, report, signer=Signer(key))


def test_a_signed_version_is_pulled_and_verified(signed, public, tmp_path, capsys):
    zoo = signed.parent
    for trusted in (PUBLIC, str(public)):
        assert main(["verify", f"{zoo}/films", "--key", trusted]) == 0
    assert "is signed by a trusted key: compress films@1 ." in capsys.readouterr().out
    assert main(["pull", f"{zoo}/films", str(tmp_path / "copy"), "--key", PUBLIC]) == 0
    assert "and is signed by a trusted key" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "copy"), "--key", PUBLIC]) == 0
    assert main(["zoo", "ls", str(zoo)]) == 0


def test_every_variant_is_signed(four_bit, publish, key, tmp_path):
    winners, root, report = four_bit
    entry = publish(winners, report, root=root, signer=Signer(key))
    copy = pull(f"{entry.parent}/films", tmp_path / "copy", keys=read_keys(PUBLIC))
    assert check_folder_signature(copy, read_keys(PUBLIC)).startswith("compress films@1 variants/pruned-onnx-int8")


def test_what_was_not_signed_is_published_again_with_a_signature(winner, report, publish, key):
    assert publish({"cpu": winner}, report).name == "films@1"
    assert publish({"cpu": winner}, report, signer=Signer(key)).name == "films@2"
    assert publish({"cpu": winner}, report, signer=Signer(key)).name == "films@2"
    assert publish({"cpu": winner}, report).name == "films@2"


def test_a_signed_publication_that_was_killed_goes_on(winner, report, publish, key, monkeypatch, tmp_path):
    """Its files are there with signatures of another time, and its record does not say yet that it is complete."""

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("compress.publish.places.FolderPlace.write", stop)
    with pytest.raises(KeyboardInterrupt):
        publish({"cpu": winner}, report, signer=Signer(key))
    monkeypatch.undo()
    monkeypatch.setattr("compress.publish.signatures.time.time", lambda: 1)
    entry = publish({"cpu": winner}, report, signer=Signer(key))
    assert entry.name == "films@1"
    assert check_folder_signature(entry, read_keys(PUBLIC)).startswith("compress films@1 .")


class TestPolicy:
    def test_what_is_not_signed_is_refused(self, published, tmp_path, capsys, monkeypatch):
        address = f"{published.parent}/films-small"
        assert main(["pull", address, str(tmp_path / "copy"), "--key", PUBLIC]) == 1
        assert "is not signed, and a signature is asked for" in capsys.readouterr().err
        monkeypatch.setenv("COMPRESS_TRUSTED_KEYS", PUBLIC)
        folder = str(published)
        commands = (["pull", address, str(tmp_path / "copy")], ["predict", address, "x"], ["verify", address])
        commands += (["bench", folder], ["bench", f"{address}:onnxruntime"], ["export", folder, str(tmp_path / "out")])
        for command in commands:
            assert main(command) == 1
            assert "is not signed" in capsys.readouterr().err
        assert not (tmp_path / "copy").exists()

    def test_python_and_the_steps_of_a_run_open_nothing_else(self, published, monkeypatch):
        recipe = parse_recipe(f"task: sentence_starts\nteacher: {published}\n", "recipe", (), NAMES)
        assert [*absent_models(recipe, {"finetune"})] == []
        monkeypatch.setenv("COMPRESS_TRUSTED_KEYS", PUBLIC)
        (problem,) = absent_models(recipe, {"finetune"})
        assert problem.startswith("teacher: ")
        assert "is not signed" in problem
        for opens in (compress.open, compress.BulkPredictor, lambda folder: compress.probe_model(folder, "length")):
            with pytest.raises(ModelError, match="is not signed"):
                opens(published)

    def test_a_folder_is_checked_as_it_is_named_though_a_variant_fits_better(
        self, two_winners, two_target_report, publish, key, monkeypatch
    ):
        entry = publish(two_winners, two_target_report, signer=Signer(key))
        monkeypatch.setenv("COMPRESS_TRUSTED_KEYS", PUBLIC)
        monkeypatch.setattr(
            "compress.publish.published_model.why_not_here", lambda held: "other CPU" if held.path == "." else None
        )
        assert checked_model(str(entry)) == str(entry)
        path = entry / "onnx" / "model.onnx"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        with pytest.raises(ModelError, match=r"is not as it was signed: onnx/model\.onnx differs"):
            checked_model(str(entry))

    def test_what_another_key_signed_is_refused(self, signed, capsys, monkeypatch):
        monkeypatch.setenv("COMPRESS_TRUSTED_KEYS", OTHER)
        with pytest.raises(ModelError, match="is signed by the key 162707431AD2EE77, which is not a trusted one"):
            opened(f"{signed.parent}/films")

    def test_what_was_altered_after_it_was_signed_is_not_opened(self, signed, monkeypatch, capsys):
        monkeypatch.setenv("COMPRESS_TRUSTED_KEYS", PUBLIC)
        assert opened(f"{signed.parent}/films") == signed
        (signed / "compress.json").write_text((signed / "compress.json").read_text() + " ")
        with pytest.raises(ModelError, match=r"is not as it was signed: .*compress\.json"):
            opened(f"{signed.parent}/films")
        assert main(["predict", f"{signed.parent}/films", "good"]) == 1
        assert "is not as it was signed" in capsys.readouterr().err

    def test_what_was_added_after_it_was_signed_is_not_opened(self, signed, monkeypatch):
        (signed / "added_tokens.json").write_text("{}")
        assert opened(f"{signed.parent}/films") == signed
        monkeypatch.setenv("COMPRESS_TRUSTED_KEYS", PUBLIC)
        with pytest.raises(ModelError, match=r"is not as it was signed: added_tokens\.json was not published"):
            opened(f"{signed.parent}/films")

    def test_a_model_of_ones_own_needs_no_signature(self, winner, monkeypatch):
        monkeypatch.setenv("COMPRESS_TRUSTED_KEYS", PUBLIC)
        assert opened(winner) == winner

    @pytest.mark.parametrize("given", ["RW", "nowhere.pub", "RWR37tIaQwcnFtbwSveasA5nZxdsTjriMeWvCVAd4kINMd544kTbxNT"])
    def test_what_is_no_key_is_one_message(self, given, signed, capsys):
        assert main(["verify", f"{signed.parent}/films", "--key", given]) == 2
        assert "neither a public key of minisign nor a file with one" in capsys.readouterr().err


class TestRefused:
    @pytest.mark.parametrize("what", ["digests", "signature", "comment"])
    def test_what_was_changed(self, what, signed):
        path = signed / DIGESTS_FILE
        signature = signed / f"{DIGESTS_FILE}.minisig"
        lines = signature.read_text().splitlines()
        if what == "digests":
            path.write_bytes(path.read_bytes() + b" ")
        elif what == "signature":
            lines[1] = lines[1][:60] + ("A" if lines[1][60] != "A" else "B") + lines[1][61:]
        else:
            lines[2] = lines[2].replace("films@1", "films@2")
        signature.write_text("\n".join(lines) + "\n")
        with pytest.raises(ModelError, match="does not fit: it, or what it signs, was changed"):
            check_folder_signature(signed, read_keys(PUBLIC))

    def test_that_of_another_version(self, signed):
        content, signature = ((signed / name).read_bytes() for name in (DIGESTS_FILE, f"{DIGESTS_FILE}.minisig"))
        with pytest.raises(ModelError, match=r"is that of 'compress films@1 .*expected 'compress films@2 \.'"):
            check_signature(content, signature, read_keys(PUBLIC), "zoo/films@2", "compress films@2 .")

    @pytest.mark.parametrize("content", [b"", b"a\nb\nc\nd\n", b"\xff" * 100, b"a\nAAAA\ntrusted comment: x\nAAAA\n"])
    def test_what_is_no_signature(self, content, signed):
        (signed / f"{DIGESTS_FILE}.minisig").write_bytes(content)
        with pytest.raises(ModelError, match="is none of minisign's"):
            check_folder_signature(signed, read_keys(PUBLIC))

    @pytest.mark.parametrize("content", ["", "a", "a\nb\n", f"a\n{PUBLIC}\n"])
    def test_what_is_no_secret_key(self, content, tmp_path):
        (tmp_path / "key").write_text(content)
        with pytest.raises(UsageError, match="is no secret key of minisign"):
            Signer(tmp_path / "key")
        with pytest.raises(UsageError, match="cannot be read as a secret key"):
            Signer(tmp_path / "nothing")


def test_the_signer_of_the_environment(key, monkeypatch):
    assert find_signer() is None
    monkeypatch.setenv("COMPRESS_SIGNING_KEY", str(key))
    assert find_signer().number == read_keys(PUBLIC)[0].number


@pytest.mark.skipif(MINISIGN is None, reason="minisign is not installed")
class TestMinisign:
    def run(self, *words, text=None):
        return subprocess.run([MINISIGN, *map(str, words)], input=text, capture_output=True, text=True, check=False)

    def test_it_verifies_what_was_signed_here(self, signed, public):
        done = self.run("-V", "-p", public, "-m", signed / DIGESTS_FILE)
        assert done.returncode == 0, done.stderr
        assert "Trusted comment: compress films@1 ." in done.stdout
        (signed / DIGESTS_FILE).write_text("changed")
        assert self.run("-V", "-p", public, "-m", signed / DIGESTS_FILE).returncode == 1

    @pytest.mark.parametrize("legacy", [[], ["-l"]])
    def test_what_it_signs_is_verified_here(self, legacy, published, key):
        comment = "compress films-small@1 ."
        done = self.run("-S", *legacy, "-s", key, "-m", published / DIGESTS_FILE, "-t", comment)
        assert done.returncode == 0, done.stderr
        assert check_folder_signature(published, read_keys(PUBLIC)).startswith(comment)

    @pytest.mark.slow
    def test_keys_that_it_makes(self, tmp_path, monkeypatch):
        plain = self.run("-G", "-W", "-p", tmp_path / "a.pub", "-s", tmp_path / "a.key")
        locked = self.run("-G", "-p", tmp_path / "b.pub", "-s", tmp_path / "b.key", text="secret\nsecret\n")
        assert (plain.returncode, locked.returncode) == (0, 0)
        monkeypatch.setenv("COMPRESS_SIGNING_PASSWORD", "another")
        with pytest.raises(UsageError, match=r"the password of .* is another one"):
            Signer(tmp_path / "b.key")
        monkeypatch.setenv("COMPRESS_SIGNING_PASSWORD", "secret")
        (tmp_path / DIGESTS_FILE).write_text("{}")
        for name in ("a", "b"):
            Signer(tmp_path / f"{name}.key").sign(tmp_path / DIGESTS_FILE, "compress x@1 .")
            assert self.run("-V", "-p", tmp_path / f"{name}.pub", "-m", tmp_path / DIGESTS_FILE).returncode == 0
        monkeypatch.delenv("COMPRESS_SIGNING_PASSWORD")
        monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
        with pytest.raises(UsageError, match="has a password, and none was given"):
            Signer(tmp_path / "b.key")


def test_a_version_without_a_record_is_no_other_one(signed, capsys, monkeypatch):
    """Without records nothing but the address says which version is meant; a signature of another is refused."""
    zoo = signed.parent
    other = zoo / "films@2"
    shutil.copytree(signed, other)
    for record in zoo.glob("*.json"):
        record.unlink()
    monkeypatch.setenv("COMPRESS_TRUSTED_KEYS", PUBLIC)
    assert opened(signed) == signed
    for address in (other, str(other)):
        with pytest.raises(ModelError, match=r"is that of 'compress films@1 .*expected 'compress films@2 \.'"):
            opened(address)
    assert main(["verify", str(other), "--key", PUBLIC]) == 1
    assert "expected 'compress films@2 .'" in capsys.readouterr().err


def test_a_place_without_records_needs_the_version():
    address = "https://models.invalid/films"
    remote = PublishedModel(address, open_place(address), "")
    with pytest.raises(ModelError, match="no record there names its version"):
        checked_digests(remote, read_keys(PUBLIC))


def test_what_an_entry_says_that_it_is_a_copy_of_does_not_count_in_a_zoo(signed):
    pulled = Pulled(source="zoo", version="films@9").model_dump_json()
    (signed / "pulled.json").write_text(pulled)
    assert check_folder_signature(signed, read_keys(PUBLIC)).startswith("compress films@1 .")
