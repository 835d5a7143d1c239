"""Rows of a real task and a teacher trained on it, for benchmarks that need real ones."""

import argparse
import hashlib
import json
import os
import tempfile
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal

from compress import __version__
from compress.console import Console
from compress.data.splits.prepare_splits import PreparedData, load_prepared, prepare_splits
from compress.errors import DataError
from compress.model_folder.model_info import TaskInfo
from compress.recipe.task_schema import Data, Task
from compress.recipe.training_schema import Finetune
from compress.storage.file_names import cache_folder
from compress.tasks.base import Row
from compress.train.finetune import finetune

SOURCE = "minilm-l6"
LEARNT, TRIAL_LEARNT = 8000, 512
"""Rows that the teacher is fine-tuned on."""


def source_task(limit: int) -> tuple[Task, str]:
    """Return SST-2 from the folder that COMPRESS_DATA names, else from the hub, and a description."""
    named = os.environ.get("COMPRESS_DATA")
    folder = Path(named or "") / "glue" / "SST-2"
    if named and not folder.is_dir():
        raise DataError(
            f"COMPRESS_DATA names a folder without {folder.relative_to(named)}.",
            hint="unset it to read SST-2 from the hub",
        )
    if named:
        data = Data(train=str(folder / "train.tsv.gz"), test=str(folder / "dev.tsv.gz"), limit=limit)
    else:
        data = Data(hub="nyu-mll/glue/sst2", train="train", test="validation", limit=limit)
    labels = ("negative", "positive")
    return Task(name="sst2", kind="classification", data=data, text=("sentence",), labels=labels), "SST-2"


def add_teacher(parser: argparse.ArgumentParser) -> None:
    """Add the option for an existing teacher."""
    description = (
        f"a finished teacher's folder (default: {SOURCE}, fine-tuned on {LEARNT} rows and stored in the cache folder)"
    )
    parser.add_argument("--teacher", help=description)


class RealTask:
    """Prepared rows, and a teacher's folder, which is written at the first request."""

    def __init__(self, work: Path, console: Console, rows: int, *, trial: bool, teacher: str | None = None) -> None:
        """``rows``: the largest number that is requested; where no ``teacher`` is given, one is fine-tuned."""
        self.work, self.console, self._given = work, console, teacher
        self.learnt = TRIAL_LEARNT if trial else LEARNT
        task, self.source = source_task(max(rows, self.learnt))
        self.data = work / "data"
        """The folder of the prepared rows."""
        self.data.mkdir()
        prepare_splits(task, 0, self.data)

    @cached_property
    def roles(self) -> PreparedData:
        """The prepared rows."""
        return load_prepared(self.data)

    @property
    def task(self) -> TaskInfo:
        """The task of all models."""
        return self.roles.info.task_info

    def first(self, role: Literal["train", "test"], count: int) -> list[Row]:
        """Return the first rows of a role."""
        return list(islice(self.roles.rows(role), count))

    @cached_property
    def teacher(self) -> Path:
        """The given one, if it was trained for this task; else MiniLM, fine-tuned briefly."""
        if self._given is None:
            return self._fine_tuned()
        finetune(self._given, self.data, False, 0, self.work / "teacher", console=self.console)
        return self.work / "teacher"

    def _fine_tuned(self) -> Path:
        """Fine-tuned once for the same rows, and then stored in the cache folder."""
        rows = self.first("train", self.learnt)
        settings = Finetune(epochs=1, batch_size=32, learning_rate=1e-4)
        content = json.dumps(
            [__version__, SOURCE, settings.model_dump(mode="json"), self.task.model_dump(mode="json"), rows]
        )
        stored = cache_folder() / "benchmarks" / f"teacher-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
        if not stored.is_dir():
            self.console.note(f"fine-tuning {SOURCE} on {len(rows)} rows …")
            stored.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=stored.parent, prefix=".making-") as scratch:
                finetune(SOURCE, self._data_of(self.learnt), settings, 0, Path(scratch) / "teacher")
                (Path(scratch) / "teacher").replace(stored)
        return stored

    def _data_of(self, count: int) -> Path:
        """Return a folder of prepared rows with at most ``count`` of train."""
        folder = self.work / f"data-{count}"
        task, _ = source_task(count)
        folder.mkdir()
        prepare_splits(task, 0, folder)
        return folder
