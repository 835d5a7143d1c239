import pytest

from compress.errors import ModelError, UsageError
from compress.publish.push_pull import push


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

    def upload_folder(self, *, repo_id, folder_path, commit_message, delete_patterns):
        self.calls.append(("upload", repo_id, folder_path))


def test_a_published_entry_is_uploaded(published, token, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    assert push(published, "someone/films") == "https://hub/someone/films"
    assert Hub.calls == [
        ("create", "someone/films", False, True, "not-a-real-one"),
        ("upload", "someone/films", published),
    ]


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
