from types import SimpleNamespace

import pytest

from compress.errors import ModelError, UsageError
from compress.publish.hub import push


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "not-a-real-one")


class Hub:
    """A client that records its calls."""

    def __init__(self, token):
        self.token = token

    calls: list[tuple] = []  # noqa: RUF012

    def create_repo(self, name, *, private, exist_ok):
        self.calls.append(("create", name, private, exist_ok, self.token))
        return f"https://hub/{name}"

    def list_repo_refs(self, name):
        return SimpleNamespace(tags=[SimpleNamespace(name="1")])

    def upload_folder(self, *, repo_id, folder_path, commit_message, delete_patterns, ignore_patterns):
        assert ignore_patterns == "pulled.json"  # it names a place of this machine
        self.calls.append(("upload", repo_id, folder_path, commit_message))
        return SimpleNamespace(oid="c0ffee")

    def create_tag(self, name, *, tag, revision):
        self.calls.append(("tag", name, tag, revision))


def test_a_version_is_one_commit_and_a_tag(published, token, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr(Hub, "calls", [])
    assert push(published, "someone/films", version="2") == "https://hub/someone/films"
    assert Hub.calls == [
        ("create", "someone/films", False, True, "not-a-real-one"),
        ("upload", "someone/films", published, "Publish version 2 with compress"),
        ("tag", "someone/films", "2", "c0ffee"),
    ]


def test_a_version_on_the_hub_is_never_overwritten(published, token, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr(Hub, "calls", [])
    with pytest.raises(UsageError, match="has the version 1 already"):
        push(published, "someone/films", version="1")
    assert [call[0] for call in Hub.calls] == ["create"]


def test_a_changed_entry_is_refused(published, token):
    (published / "config.json").write_text("changed")
    with pytest.raises(ModelError, match="is not what was published"):
        push(published, "someone/films")


def test_the_token_comes_from_the_environment(published, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(UsageError, match="environment variable HF_TOKEN"):
        push(published, "someone/films")


@pytest.mark.parametrize("name", ["films", "a/b/c", "a/b@v1", "../up"])
def test_invalid_hub_ids_are_refused(published, token, name):
    with pytest.raises(UsageError, match="not a hub id"):
        push(published, name)


def test_being_offline_is_reported(published, token, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="cannot be pushed to the hub"):
        push(published, "someone/films")
