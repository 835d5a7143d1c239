"""A trained teacher, its student and the pruned student of every task kind: real sets, a few hundred rows each.

They are made by recipes into a folder of runs in the cache folder, so that a machine trains each of them once; a recipe
or a training that changes makes its models again.
"""

import gzip
import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from compress.console import Console
from compress.model_folder.model_info import FolderInfo
from compress.pipeline.run import Options, execute, prepare
from compress.pipeline.step_store import StepStore
from compress.storage.atomic_write import atomic_write, new_folder
from compress.storage.file_names import cache_folder

MODELS = ("teacher", "student", "pruned")
ENCODER = "encoder"
"""A model without a task: the encoders of `classification`."""

TASKS: Mapping[str, Mapping[str, Any]] = {
    "classification": {
        "name": "sst2",
        "data": {"train": "glue/SST-2/train.tsv.gz", "test": "glue/SST-2/dev.tsv.gz", "format": "tsv"},
    },
    "pairs": {
        "name": "mrpc",
        "data": {"train": "glue/MRPC/train.tsv.gz", "test": "glue/MRPC/dev.tsv.gz", "format": "tsv"},
    },
    "multi_label": {"name": "slot_types", "kind": "multi_label", "data": {"train": "snips", "test_share": 0.1}},
    "regression": {
        "name": "stsb",
        "data": {"train": "glue/STS-B/train.tsv.gz", "test": "glue/STS-B/dev.tsv.gz", "format": "tsv"},
    },
    "token_classification": {
        "name": "snips_slots",
        "data": {"train": "snips/train.jsonl.gz", "test_share": 0.1, "bad_rows": "skip"},
    },
    "question_answering": {
        "name": "squad",
        "overlap": 32,
        "data": {"train": "squad/train_v1.1_subset.jsonl.gz", "test_share": 0.1, "bad_rows": "skip"},
    },
    "multiple_choice": {
        "name": "arc_easy",
        "data": {"train": "arc/arc_easy_train.jsonl.gz", "test": "arc/arc_easy_dev.jsonl.gz"},
    },
    "similarity": {
        "name": "stsb_embedding",
        "data": {"train": "glue/STS-B/train.tsv.gz", "test": "glue/STS-B/dev.tsv.gz", "format": "tsv"},
    },
    "retrieval": {"name": "answer_retrieval", "data": {"train": "reqa_squad/train.json.gz", "test_share": 0.1}},
    "ranking": {"name": "wikiqa", "data": {"train": "wikiqa/train.tsv.gz", "test": "wikiqa/dev.tsv.gz"}},
}
"""By kind (`pairs`: classification of two texts), the recipe's task; files are below the folder of real data."""

KINDS = (*TASKS, ENCODER)
SLOTS = ("artist", "city", "country", "playlist", "rating_value", "state", "timeRange", "track")
"""The labels of `multi_label`: types of SNIPS' slots that are frequent."""
ROWS = {"ranking": 60, "question_answering": 200, "multiple_choice": 150}
"""Rows of each role, of ranking questions; of other kinds 300."""
LENGTHS = {"question_answering": 128}
"""Pieces of a text; of other kinds 64, which most of the long texts exceed."""


def trained_models(kind: str, data: Path) -> dict[str, Path]:
    """Return the folders of a kind's three models, training those that are not cached.

    Args:
        kind: a key of `TASKS`, or `ENCODER`.
        data: the folder of real data.
    """
    if kind == ENCODER:
        return {name: _encoder_of(folder) for name, folder in trained_models("classification", data).items()}
    options = Options(runs=_cache() / "runs", until="prune")
    plan = prepare(_recipe(kind, data), (), options)
    records = execute(plan, options, Console("quiet")).outcome.records
    steps = {"teacher": "finetune", "student": "distill", "pruned": plan.models[-1].step}
    return {name: StepStore(options.root).folder_of(records[step]) for name, step in steps.items()}


def _recipe(kind: str, data: Path) -> dict[str, Any]:
    task = dict(TASKS[kind])
    files = {
        key: str(data / value) if isinstance(value, str) and value.endswith(".gz") else value
        for key, value in task["data"].items()
    }
    if kind == "multi_label":
        files["train"] = str(_slot_types(data / "snips" / "train.jsonl.gz"))
    recover = {"epochs": 1}
    return {
        "name": f"other-tools-{kind.replace('_', '-')}",
        "task": {**task, "max_length": LENGTHS.get(kind, 64), "data": {**files, "limit": ROWS.get(kind, 300)}},
        "teacher": str(_three_layers()),
        "finetune": {"epochs": 2, "reuse": False},
        "student": {"layers": 2},
        "distill": {"epochs": 1},
        "prune": {"heads": 0.25, "ffn": 0.5, "batches": 4, "recover": recover, "vocabulary": "seen"},
        "export": ["onnx"],
    }


def _cache() -> Path:
    folder = cache_folder() / "other-tools"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _three_layers() -> Path:
    """Every second layer of MiniLM, which makes teachers that are cheap to train and to export."""
    from compress.models import load_model, load_tokenizer, save_model
    from compress.models.student.build_student import build_student
    from compress.recipe.student_schema import Student

    folder = _cache() / "minilm-l6-layers-1-3-5"
    if not folder.is_dir():
        model = build_student(load_model("minilm-l6"), Student(layers=(1, 3, 5)))
        with new_folder(folder) as work:
            save_model(model, load_tokenizer("minilm-l6"), work, FolderInfo(step="slice", made_by="tests"))
    return folder


def _encoder_of(folder: Path) -> Path:
    """The encoder of a model, as a folder without a task beside those of the runs."""
    from compress.models import load_model, load_tokenizer, save_model

    encoder = _cache() / "encoders" / folder.name
    if not encoder.is_dir():
        encoder.parent.mkdir(exist_ok=True)
        with new_folder(encoder) as work:
            save_model(
                load_model(folder).base_model, load_tokenizer(folder), work, FolderInfo(step="encoder", made_by="tests")
            )
    return encoder


def _slot_types(source: Path) -> Path:
    """Requests of SNIPS with the types of slots that they have: several labels a text."""
    file, lines = _cache() / "slot-types.jsonl", []
    with gzip.open(source, "rt", encoding="utf-8") as rows:
        for row in map(json.loads, islice(rows, 3000)):
            types = {slot.partition("-")[2] for slot in row["slots"].split()}
            if labels := sorted(types.intersection(SLOTS)):
                lines.append(json.dumps({"text": row["text"], "label": labels}) + "\n")
    atomic_write(file, "".join(lines))
    return file
