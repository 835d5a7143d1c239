"""The model of all checks: created here, exported with our exporter, and quantized to INT8."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compress.errors import MissingExtra
from compress.measure.timing.schedule import fixed_arrays
from compress.model_folder.model_info import TaskInfo

TEACHER = "minilm-l6"
"""The card whose weights come with the `quickstart` extra."""
TASK = TaskInfo(
    name="harness", kind="classification", text=("text",), labels=("no", "yes"), metric="accuracy", max_length=128
)
"""With a head the outputs are two numbers: tools that store all outputs are not slowed down."""
PRECISIONS = ("fp32", "int8")


@dataclass(frozen=True)
class Files:
    """The model as the harness and the other tools open it."""

    source: str
    """A description of the weights."""
    exported: dict[str, Path]
    """The exported folder of each precision, with the settings that were chosen for it."""
    bare: dict[str, Path]
    """The ONNX file of each precision without any settings."""
    inputs: dict[str, Path]
    """The input arrays, as .npy files."""


def make_files(work: Path, batch: int, length: int) -> Files:
    """Create all files in ``work``, without the hub."""
    from compress.make_variant import export_from_model
    from compress.models.load_save import load_model, load_tokenizer
    from compress.quantize import quantize_folder

    try:
        model, tokenizer = load_model(TEACHER, TASK), load_tokenizer(TEACHER)
        source = f"{TEACHER} with a random head of two classes"
    except MissingExtra:
        folder = work / "random"
        _write_random(folder)
        model, tokenizer = load_model(folder, TASK), load_tokenizer(folder)
        source = "random weights in the shape of MiniLM-L6 (the quickstart extra is not installed)"
    exported = {"fp32": work / "exported-fp32", "int8": work / "exported-int8"}
    export_from_model(model, tokenizer, exported["fp32"], task=TASK)
    quantize_folder(exported["fp32"], exported["int8"])
    bare = {precision: _bare(folder, work / f"bare-{precision}") for precision, folder in exported.items()}
    inputs = {}
    for name, array in fixed_arrays(exported["fp32"], batch, length, seed=0).items():
        inputs[name] = work / f"{name}.npy"
        np.save(inputs[name], array)
    return Files(source, exported, bare, inputs)


def _bare(exported: Path, folder: Path) -> Path:
    """The graph alone: without compress.json the harness opens it without settings too, as the other tools do."""
    folder.mkdir()
    shutil.copyfile(exported / "config.json", folder / "config.json")  # has the size of the vocabulary
    return Path(shutil.copyfile(exported / "model.onnx", folder / "model.onnx"))


def _write_random(folder: Path) -> None:
    """MiniLM-L6's shape with random weights: as fast as the real one."""
    import torch
    from transformers import BertConfig, BertModel

    from compress.models.read_checkpoint import quiet
    from compress.models.tiny import tiny_tokenizer

    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
        tiny_tokenizer("bert").save_pretrained(folder)
