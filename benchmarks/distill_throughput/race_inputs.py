"""The inputs of a comparison: rows, a trained teacher, students built from it, and a score on dev."""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForSequenceClassification, PreTrainedModel

from benchmarks.real_task import SOURCE, RealTask
from compress import __version__
from compress.console import Console
from compress.data.encode import encode_rows
from compress.data.tokenizer import TextTokenizer
from compress.model_folder.model_info import FolderInfo
from compress.models.encoder_parts import family_of, shape_of
from compress.models.load_save import load, load_tokenizer, save_model
from compress.models.read_checkpoint import quiet
from compress.models.student.build_student import build_student
from compress.recipe.student_schema import Student
from compress.tasks.base import Row
from compress.train.core.optimizer import load_weights
from compress.train.core.training_data import make_evaluator
from compress.train.loop import Evaluate

PAIRS = ((0, 1), (1, 3), (2, 5))
PAIRS_OF_BASE = ((0, 3), (1, 7), (2, 11))
"""For a teacher of 12 layers: most of a step is the teacher's forward pass."""
LENGTH = 128


@dataclass(frozen=True)
class RaceInputs:
    """The files of one job."""

    teacher: Path
    student: Path
    rows: Path
    pairs: tuple[tuple[int, int], ...]
    pieces: float
    """Mean number of tokens of a row."""


class InputsBuilder(RealTask):
    """Creates the inputs of a race when first needed, in a temporary folder."""

    def __init__(self, work: Path, console: Console, rows: int, *, trial: bool) -> None:
        """``rows``: the largest number that a race uses."""
        super().__init__(work, console, rows, trial=trial)
        self.rows = rows

    def inputs_for(self, name: str) -> RaceInputs:
        """Return the inputs `short`, `full` or `base`."""
        base = name == "base"
        teacher = self.teacher_of_base if base else self.teacher
        pairs = PAIRS_OF_BASE if base else PAIRS
        tokens = TextTokenizer.load(teacher)
        rows = self.first("train", self.rows)
        chosen = list(filled(rows, tokens)) if name == "full" else rows
        path = self.work / f"{name}.jsonl"
        return RaceInputs(teacher, self.student(teacher, pairs), path, pairs, self._write(path, chosen, tokens))

    @cached_property
    def teacher_of_base(self) -> Path:
        """BERT-base's shape with random weights: as fast as the real one."""
        config = BertConfig(id2label=dict(enumerate(self.task.labels)))
        with quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = BertForSequenceClassification(config)
        return self._save(model, self.work / "base")

    def student(self, teacher: Path, pairs: Sequence[tuple[int, int]]) -> Path:
        """A student built from the teacher layers that it is compared with."""
        folder = self.work / f"student-of-{teacher.name}"
        if folder.is_dir():
            return folder
        layers = tuple(theirs for _, theirs in pairs)
        return self._save(build_student(load(teacher), Student(layers=layers), self.task), folder)

    def _save(self, model: PreTrainedModel, folder: Path) -> Path:
        info = FolderInfo(
            step="benchmark",
            made_by=f"compress {__version__}",
            task=self.task,
            shape=shape_of(model),
            inputs=family_of(model).inputs,
        )
        save_model(model, load_tokenizer(SOURCE), folder, info)
        return folder

    def _write(self, path: Path, rows: Sequence[Row], tokens: TextTokenizer) -> float:
        """Write the rows for all contestants; returns their average length."""
        encoded = encode_rows(rows, self.task, tokens)
        with path.open("w", encoding="utf-8") as lines:
            for placement, row in enumerate(rows):
                pieces = encoded.example(placement)["input_ids"].tolist()
                lines.write(json.dumps({"row": row, "input_ids": pieces, "label": row["label"]}) + "\n")
        return float(np.mean(encoded.lengths))

    def score(self, folder: Path, trained: Path | None = None) -> float:
        """Return a model's score on all of test by compress's scorer, with ``trained`` weights where given."""
        model = load(folder)
        if trained is not None:
            load_weights(model, load_file(trained))
        return self._scorer(model)

    @cached_property
    def _scorer(self) -> Evaluate:
        return make_evaluator(self.roles.rows("test"), self.task, TextTokenizer.load(self.teacher))

    def delete_files(self, folder: Path) -> None:
        """Remove a contestant's files."""
        shutil.rmtree(folder, ignore_errors=True)


def filled(rows: Sequence[Row], tokens: TextTokenizer, length: int = LENGTH) -> Iterator[Row]:
    """Yield as many rows, each joined with the texts after it until it has ``length`` tokens."""
    for placement, row in enumerate(rows):
        yield {**row, "text": _filled(_texts_from(rows, placement), tokens, length)}


def _texts_from(rows: Sequence[Row], placement: int) -> Iterable[str]:
    return (str(rows[(placement + step) % len(rows)]["text"]) for step in range(1000))


def _filled(texts: Iterable[str], tokens: TextTokenizer, length: int) -> str:
    text = ""
    for more in texts:
        text = f"{text} {more}".strip()
        if len(tokens(text, None, length).input_ids) >= length:
            break
    return text
