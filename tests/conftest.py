"""What all tests share."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from compress.models.masked_lm import MaskedModel


def pytest_configure(config: pytest.Config) -> None:
    """Hide a GPU from all tests but those of `-m gpu`: the others expect what a CPU computes, bit for bit."""
    if not re.search(r"(?<!not )(?<!not \()\bgpu\b", config.option.markexpr):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip slow tests that would begin after COMPRESS_TEST_UNTIL, in seconds since 1970, on a slow machine."""
    is_fast = not any(item.get_closest_marker(name) for name in ("slow", "wheel", "browser"))
    if not is_fast and time.time() > float(os.environ.get("COMPRESS_TEST_UNTIL", "inf")):
        pytest.skip("the time of this run is over (COMPRESS_TEST_UNTIL)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin elsewhere each hour where time is limited, so that no test is always among those that are left out."""
    if items and (until := os.environ.get("COMPRESS_TEST_UNTIL")):
        start = int(float(until)) // 3600 * 997 % len(items)
        items[:] = [*items[start:], *items[:start]]


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data that COMPRESS_DATA names; its rows never enter this repository."""
    named = os.environ.get("COMPRESS_DATA")
    if not named:
        pytest.skip("COMPRESS_DATA names no folder of real data")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"COMPRESS_DATA names {named}, which is no folder")
    return folder


TEXT = "[PAD] [UNK] [CLS] [SEP] a bad bit but dull film fine good great is it not of or plot so the very was"
WORDS = TEXT.split(" ")
SHARED = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
}
TINY = {
    "bert": ("Bert", SHARED),
    "roberta": ("Roberta", SHARED | {"pad_token_id": 1, "type_vocab_size": 1, "max_position_embeddings": 66}),
    "xlm-roberta": ("XLMRoberta", SHARED | {"pad_token_id": 1, "type_vocab_size": 1, "max_position_embeddings": 66}),
    "electra": ("Electra", SHARED | {"embedding_size": 16}),
    "distilbert": ("DistilBert", {"vocab_size": 64, "dim": 32, "n_heads": 4, "hidden_dim": 64, "n_layers": 2}),
    "albert": ("Albert", SHARED | {"embedding_size": 16}),
    "mobilebert": (
        "MobileBert",
        # It normalizes nothing: with larger weights its hidden states reach 10,000, and rounding its logits.
        SHARED | {"embedding_size": 32, "true_hidden_size": 16, "intra_bottleneck_size": 16, "initializer_range": 0.1},
    ),
    "modernbert": (
        "ModernBert",
        SHARED
        | {
            "pad_token_id": 0,
            "local_attention": 8,
            "bos_token_id": 2,
            "eos_token_id": 3,
            "cls_token_id": 2,
            "sep_token_id": 3,
        },
    ),
}
"""For each family the prefix of its transformers classes, and a configuration of two layers."""


def make_tiny(family, labels=("bad", "good"), head="ForSequenceClassification", **changes):
    """A random model with weights large enough that its decisions differ from text to text."""
    import torch
    import transformers

    prefix, sizes = TINY[family]
    config = getattr(transformers, f"{prefix}Config")(
        **{"max_position_embeddings": 64, "initializer_range": 0.3, **sizes, **changes},
        id2label=dict(enumerate(labels)),
        label2id={label: index for index, label in enumerate(labels)},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return class_of(f"{prefix}{head}", type(config))(config).eval()


def class_of(name, config):
    """One of transformers' model classes, or ours for embeddings."""
    import transformers

    from compress.models.heads import HEADS, head_of_class

    ours = HEADS["sentence-embedding"]
    return ours.model_class(config) if head_of_class(name) is ours else getattr(transformers, name)


def word_tokenizer(words):
    """A tokenizer of these words, in BERT's manner."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def same_weights(first, second):
    """Whether two models have equal weights of equal names."""
    import torch

    ours, theirs = first.state_dict(), second.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.fixture(scope="session")
def tiny_model():
    """Makes a tiny random model of a family: ``tiny_model("bert", labels=("no", "yes"), num_hidden_layers=3)``."""
    return make_tiny


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """A tokenizer of a few words."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(WORDS),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


@pytest.fixture(scope="session")
def tiny_task():
    """The task that tiny models answer."""
    from compress.model_folder.model_info import TaskInfo

    labels = ("bad", "good")
    return TaskInfo(
        name="films", kind="classification", text=("text",), labels=labels, metric="accuracy", max_length=32
    )


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory, tiny_tokenizer, tiny_task):
    """Makes the model folder of a tiny model, of a family's name or of a model: ``tiny_folder("bert")``."""

    def make(model, task=tiny_task):
        from compress.model_folder.model_info import FolderInfo
        from compress.models import save_model

        made = make_tiny(model) if isinstance(model, str) else model
        folder = tmp_path_factory.mktemp("tiny")
        save_model(made, tiny_tokenizer, folder, FolderInfo(step="finetune", made_by="tests", task=task))
        return folder

    return make


RECIPE = """\
task:
  kind: classification
  data: {{train: {folder}/train.csv, test: {folder}/test.csv, select_share: 0.05}}
  max_length: 32
teacher: {folder}/teacher
finetune: {{epochs: 2, batch_size: 16, learning_rate: 0.003}}
student: {{layers: 1}}
distill: {{epochs: 2, batch_size: 16, learning_rate: 0.003, soft_label: 1.0, hidden_state: 1.0, attention: 1.0}}
prune: {{heads: 0.25, ffn: 0.5, batches: 4, recover: {{epochs: 1, batch_size: 16}}}}
quantize: {{methods: dynamic, max_drop: 1.0}}
gate: {{max_drop: 1.0}}
measure: {{rounds: 3, processes: 1, seconds: 0.02, bootstrap: 100, memory: {memory}}}
publish: {folder}/zoo
"""
"""A whole pipeline in seconds. It may lose everything: what is tested is that it runs."""

WEATHER = {"sunny": ["sun", "blue sky", "warm", "bright"], "rainy": ["rain", "grey cloud", "wet", "storm"]}


def write_rows(path: Path, count: int) -> None:
    lines = ["text,label"]
    for number in range(count):
        label = ("sunny", "rainy")[number % 2]
        words = WEATHER[label]
        lines.append(f"{words[number % 4]} and {words[(number // 4) % 4]} on day {number},{label}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_tiny_recipe(folder: Path, memory: str = "[]") -> Path:
    """A recipe, its rows and its two-layer teacher; ``memory``: the batches at which that of variants is measured."""
    from compress.models.tiny import write_tiny_model

    write_rows(folder / "train.csv", 160)
    write_rows(folder / "test.csv", 60)
    write_tiny_model(folder / "teacher", "bert")
    path = folder / "tiny.yaml"
    path.write_text(RECIPE.format(folder=folder, memory=memory), encoding="utf-8")
    return path


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    """The tiny recipe, on its own."""
    return write_tiny_recipe(tmp_path)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny recipe, run to its end once for all tests that look at what is left; they must not change it."""
    folder = machine_folder(tmp_path_factory) / "run"
    with FileLock(f"{folder}.lock"):
        if not (folder / "tiny").exists():
            _run_tiny_recipe(folder)
    return folder / "tiny"


def machine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this session that all of its processes share: what is made there under a lock is made once."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def _run_tiny_recipe(folder: Path) -> None:
    from compress.cli import main

    folder.mkdir()
    recipe = write_tiny_recipe(folder, memory="1")
    assert main(["run", str(recipe), "--runs", str(folder / "runs"), "--format", "quiet"]) == 0
    (folder / "tiny").symlink_to(folder / "runs" / "tiny")


@pytest.fixture(scope="session")
def assets() -> None:
    """Skips a test unless the npm packages are cached or can be downloaded, and Node.js is installed."""
    from compress.errors import CompressError
    from compress.export.web.npm_assets import PACKAGES, archive_of

    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    try:
        for package in PACKAGES:
            archive_of(package)
    except CompressError as error:
        pytest.skip(error.message)


@pytest.fixture
def word_folder(tmp_path: Path) -> Path:
    """A folder with the tokenizer of five words, in BERT's manner."""
    folder = tmp_path / "words"
    folder.mkdir()
    word_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "d", "e"]).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def masked_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny masked language model."""
    from compress.models.tiny import write_tiny_model

    folder = tmp_path_factory.mktemp("masked")
    write_tiny_model(folder, "bert", masked=True)
    return folder


@pytest.fixture(scope="session")
def masked_model(masked_folder: Path) -> MaskedModel:
    """That model."""
    from compress.models.masked_lm import MaskedModel

    return MaskedModel.load(str(masked_folder))
