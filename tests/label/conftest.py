"""A local service, a recipe for it, and waits that take no time."""

import json

import pytest
import yaml

from compress.console import Console
from compress.label.ask_service import Pace
from compress.label.label import label
from compress.label.label_task import load_label_recipe
from tests.label.chat_server import KEY, serving

TEXTS = [f"a {'good' if number % 3 else 'bad'} film {number}" for number in range(12)]


@pytest.fixture(autouse=True)
def own_cache_and_key(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SERVICE_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server():
    with serving() as state:
        yield state


class Labelling:
    """A recipe in a file, and its labelling; the seconds that it would have waited are in `waits`."""

    def __init__(self, folder, url):
        self.folder, self.target, self.waits = folder, folder / "out", []
        self.rows(TEXTS)
        task = {"kind": "classification", "data": {"train": str(folder / "rows.jsonl")}, "text": "review"}
        task["labels"] = ["bad", "good"]
        endpoint = {"url": url, "model": "large", "key": "SERVICE_KEY", "timeout": 5, "retries": 2}
        self.recipe = {"task": task, "endpoint": endpoint, "concurrency": 4, "held_out": 0.3}
        self.file = folder / "reviews.yaml"

    def rows(self, texts):
        lines = [json.dumps({"review": text}) + "\n" for text in texts]
        (self.folder / "rows.jsonl").write_text("".join(lines))

    def load(self, *overrides):
        self.file.write_text(yaml.safe_dump(self.recipe))
        return load_label_recipe(self.file, overrides)

    def wait(self, stop, seconds):
        self.waits.append(seconds)
        return stop.is_set()

    def run(self, *overrides, **options):
        recipe = self.load(*overrides)
        pace = Pace(recipe.requests_per_minute, wait=self.wait)
        return label(recipe, self.target, Console("quiet"), pace=pace, **options)

    def read(self, name):
        return [json.loads(line) for line in (self.target / name).read_text().splitlines()]

    @property
    def written(self):
        return {row["review"]: row["label"] for row in [*self.read("train.jsonl"), *self.read("test.jsonl")]}


@pytest.fixture
def labelling(tmp_path, server):
    pytest.importorskip("openai", reason="openai is not installed")
    return Labelling(tmp_path, server.url)
