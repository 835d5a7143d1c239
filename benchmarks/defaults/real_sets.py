"""The real sets on which defaults are chosen and judged: files below the folder that COMPRESS_DATA names."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.defaults.wiki_articles import write_wiki_articles
from compress.data.splits.prepare_splits import PreparedData, load_prepared, prepare_splits
from compress.errors import DataError
from compress.pipeline.preflight.recipe_checks import NAMES
from compress.recipe.load import parse_recipe
from compress.recipe.task_schema import Task

VARIABLE = "COMPRESS_DATA"


@dataclass(frozen=True)
class RealSet:
    """One set: its files by role, and the task settings that its files need."""

    files: Mapping[str, str]
    task: Mapping[str, Any]
    source: str | None = None
    """The file from which ``write`` draws the set's files."""
    write: Callable[[Path, Path], None] | None = None

    def section(self, work: Path) -> dict[str, Any]:
        """Return the `task` section of a recipe; files that have to be drawn are written to ``work`` once."""
        folder = Path(os.environ.get(VARIABLE, ""))
        if self.source and self.write:
            source, folder = _existing(folder / self.source), work / f"files of {self.task['name']}"
            if not folder.exists():
                drawn = Path(tempfile.mkdtemp(dir=work))
                self.write(source, drawn)
                drawn.rename(folder)
        data = {role: str(_existing(folder / file)) for role, file in self.files.items()}
        return {**self.task, "data": {**self.task.get("data", {}), **data}}

    def prepare(self, folder: Path, limit: int | None = None) -> PreparedData:
        """Return the prepared rows, at most ``limit`` of each role; they are written to ``folder`` once."""
        if not (folder / "data.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            section = self.section(folder.parent)
            section["data"]["limit"] = limit
            prepare_splits(_parse(section), 0, folder)
        return load_prepared(folder)


def _existing(path: Path) -> Path:
    """Return the path of a file; raise where it does not exist."""
    if not os.environ.get(VARIABLE) or not path.is_file():
        where = f"there is no {path}" if os.environ.get(VARIABLE) else f"{VARIABLE} is not set"
        raise DataError(f"{where}.", hint=f"set {VARIABLE} to a folder that has it, or leave this set out")
    return path


def _parse(section: Mapping[str, Any]) -> Task:
    content = json.dumps({"task": section, "teacher": "minilm-l6"})
    return parse_recipe(content, "benchmarks.defaults", (), NAMES).task


def _glue(name: str, folder: str, test: str = "dev.tsv.gz") -> RealSet:
    files = {"train": f"glue/{folder}/train.tsv.gz", "test": f"glue/{folder}/{test}"}
    return RealSet(files, {"name": name, "data": {"format": "tsv"}})


SNIPS = {role: f"snips/{file}.jsonl.gz" for role, file in (("train", "train"), ("select", "valid"), ("test", "test"))}
AG_NEWS = {"train": "ag_news/train_10001_subset.tsv.gz", "test": "ag_news/test.csv.gz"}

WIKI = {"train": "train.jsonl", "test": "test.jsonl"}

SETS: Mapping[str, RealSet] = {
    "sst2": _glue("sst2", "SST-2"),
    "snips_intents": RealSet(
        SNIPS, {"name": "snips_intents", "kind": "classification", "text": ["text"], "label": "intent"}
    ),
    "mrpc": _glue("mrpc", "MRPC", "msr_paraphrase_test.txt.gz"),
    "ag_news": RealSet(
        AG_NEWS,
        {
            "name": "ag_news",
            "max_length": 64,
            "first_label": 1,
            "data": {"header": {"test": ["label", "title", "description"]}},
        },
    ),
    "stsb": _glue("stsb", "STS-B"),
    "rte": _glue("rte", "RTE"),
    "snips_slots": RealSet(SNIPS, {"name": "snips_slots"}),
    "wiki_articles": RealSet(
        WIKI,
        {"name": "wiki_articles", "kind": "classification", "text": ["text"], "label": "label"},
        "wiki_en/AA.jsonl.gz",
        write_wiki_articles,
    ),
}
"""Sentences of two, of seven and of 77 classes, pairs, longer texts, scores of pairs, and tags of words."""
