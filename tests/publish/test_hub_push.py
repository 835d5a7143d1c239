import pytest

from compress.errors import ModelError, UsageError
from compress.publish.hub_push import push


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "not-a-real-one")


class Hub:
    """What the hub is asked for."""

    def __init__(self, token):
        self.token = token

    asked: list[tuple] = []  # noqa: RUF012

    def create_repo(self, name, *, private, exist_ok):
        self.asked.append(("create", name, private, exist_ok, self.token))
        return f"https://hub/{name}"

    def upload_folder(self, *, repo_id, folder_path, commit_message, delete_patterns):
        self.asked.append(("upload", repo_id, folder_path))


def test_a_published_model_is_pushed_whole(published, token, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    assert push(published, "someone/films") == "https://hub/someone/films"
    assert Hub.asked == [
        ("create", "someone/films", False, True, "not-a-real-one"),
        ("upload", "someone/films", published),
    ]


def test_nothing_changed_is_pushed(published, token):
    (published / "config.json").write_text("changed")
    with pytest.raises(ModelError, match="is not what was published"):
        push(published, "someone/films")


def test_the_token_comes_from_the_environment(published, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(UsageError, match="environment variable HF_TOKEN"):
        push(published, "someone/films")


@pytest.mark.parametrize("name", ["films", "a/b/c", "a/b@v1", "../up"])
def test_names_that_are_no_hub_ids(published, token, name):
    with pytest.raises(UsageError, match="not a hub id"):
        push(published, name)


def test_offline_is_told(published, token, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="cannot be pushed to the hub"):
        push(published, "someone/films")
