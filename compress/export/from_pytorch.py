"""What exports of a PyTorch model have in common: its inputs, and what they take over from it and are compared with.

Inputs, their free axes and a sample stand in optimum's table, by family and task. Its `TasksManager` maps (model_type,
backend, task) to a config of the export, and since its version 2 has none of its own: backends register theirs. What
optimum knows is taken from it: the names of tasks and of their outputs, a family's config keys
(`NormalizedConfigManager`) and the generator of sample inputs.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from optimum.exporters.base import ExporterConfig
from optimum.exporters.tasks import TasksManager
from optimum.utils import DummyTextInputGenerator, NormalizedConfigManager, NormalizedTextConfig
from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.data.tokenizer import TOKENIZER_FILE
from compress.export.build_context import BuildContext
from compress.export.comparison.golden_inputs import single_texts
from compress.export.comparison.parity import TOLERANCE
from compress.export.write_variant import write_variant
from compress.families import FAMILIES, LIGHT_FAMILIES, Family, max_positions
from compress.formats import EXPORTS
from compress.model_folder.model_info import FolderInfo, find_info
from compress.model_folder.sentence_transformers_files import task_of_folder
from compress.models.encoder_parts import family_of, shape_of
from compress.models.heads import head_of
from compress.models.load_save import load_tokenizer
from compress.runtime.model_formats import FP32
from compress.runtime.predictor import ONE_THREAD
from compress.runtime.torch_eager import TorchPredictor, tensors

TASKS: Mapping[str, str] = {
    "sequence-classification": "text-classification",
    "token-classification": "token-classification",
    "question-answering": "question-answering",
    "sentence-embedding": "sentence-similarity",
    "encoder": "feature-extraction",
}
"""optimum's name for what each head of `compress.models.heads.HEADS` computes."""

AXES = {0: "batch", 1: "length"}
"""Names of the free axes of every input."""

SAMPLE_SIZES = {"batch_size": 2, "sequence_length": 7}
"""Of the batch to trace: sizes that occur nowhere else in a model."""


class FamilyExporter(ExporterConfig):  # type: ignore[misc]
    """How a family is exported for a task; subclasses name the family."""

    family: Family
    DUMMY_INPUT_GENERATOR_CLASSES = (DummyTextInputGenerator,)

    @property
    def inputs(self) -> dict[str, dict[int, str]]:
        """The arrays that the graph takes, and their free axes."""
        return {name: dict(AXES) for name in self.family.inputs}

    @property
    def outputs(self) -> list[str]:
        """The arrays that the graph returns first; an encoder's pooled states may follow."""
        return ["sentence_embedding"] if self.task == TASKS["sentence-embedding"] else list(super().outputs)


def exporter_config(model: PreTrainedModel, form: str = "onnx") -> FamilyExporter:
    """Return how a model is exported to a format that is made from PyTorch, a key of `EXPORTS` without a source."""
    register_exporters()
    constructor = TasksManager.get_exporter_config_constructor(
        form, model_type=family_of(model).name, task=TASKS[head_of(model).name], library_name="transformers"
    )
    config: FamilyExporter = constructor(model.config)
    return config


def example_inputs(model: PreTrainedModel, form: str = "onnx", **sizes: int) -> dict[str, Tensor]:
    """Return a batch to trace, of random tokens, and with padding, so that masks are traced.

    ``sizes``: instead of those in `SAMPLE_SIZES`.
    """
    with _fixed_random_state():
        sample = exporter_config(model, form).generate_dummy_inputs(framework="pt", **SAMPLE_SIZES | sizes)
    if "token_type_ids" in sample:  # optimum draws two types, and a model may have one
        sample["token_type_ids"].clamp_(max=model.config.type_vocab_size - 1)
    return {name: values.to(model.device) for name, values in sample.items()}


@cache
def register_exporters() -> None:
    """Add every family, for every task and every format made from PyTorch, to optimum's table."""
    for form in [name for name, each in EXPORTS.items() if each.source is None]:
        register = TasksManager.create_register(form, overwrite_existing=True)
        for family in {**FAMILIES, **LIGHT_FAMILIES}.values():
            register(family.name, *TASKS.values())(_exporter_of(family))


def _exporter_of(family: Family) -> type[FamilyExporter]:
    # optimum calls it through the instance; Python 3.14 binds a `partial` there as a method, and 3.13 warns of it
    members = {"family": family, "NORMALIZED_CONFIG_CLASS": staticmethod(config_names(family)), "__module__": __name__}
    return type(f"{family.name.title().replace('-', '')}Exporter", (FamilyExporter,), members)


def config_names(family: Family) -> Any:
    """Return what reads a family's config by optimum's names: optimum's own class, or one of our table's keys."""
    try:
        return NormalizedConfigManager.get_normalized_config_class(family.name)
    except KeyError:  # MobileBERT
        return NormalizedTextConfig.with_args(
            hidden_size=family.hidden_key, num_layers=family.layers_key, num_attention_heads=family.heads_key
        )


@contextmanager
def _fixed_random_state() -> Iterator[None]:
    """Make what is drawn the same each time, and leave the global generators as they were."""
    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        try:
            random.seed(0)
            torch.manual_seed(0)
            yield
        finally:
            random.setstate(state)


class PositionalModel(nn.Module):
    """Calls a model with its family's inputs in their order; both orders are known by name."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        sample = example_inputs(model, "executorch")
        self.inputs = tuple(sample)
        with torch.no_grad():
            self.outputs = tuple(tensors(model(**sample)))

    def forward(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of a padded batch."""
        outputs = self.model(**dict(zip(self.inputs, arrays, strict=True)))
        return tuple(outputs[name] for name in self.outputs)


def take_over(context: BuildContext, model: PreTrainedModel) -> FolderInfo:
    """Write the tokenizer where it would not be copied, and return the compress.json of the source.

    Args:
        context: of the build; its source is a model folder, or a plain Hugging Face one, whose compress.json is made
            of the model.
        model: loaded from the source.
    """
    if not (context.source / TOKENIZER_FILE).is_file():  # older checkpoints have only the files that Python can read
        load_tokenizer(context.source).save_pretrained(context.work)
    made_here = find_info(context.source)
    return made_here or FolderInfo(step="export", task=task_of_folder(context.source), shape=shape_of(model))


def longest_input(model: PreTrainedModel, base: FolderInfo) -> int:
    """Return the tokens of the longest row that a model is given: its task's, or fewer where it has fewer positions."""
    task, config = base.task or single_texts(), model.config
    positions = max_positions(config.to_dict(), getattr(config, "pad_token_id", None))
    return task.max_length if positions is None else min(task.max_length, positions)


def write_compared(
    context: BuildContext, model: PreTrainedModel, base: FolderInfo, inputs: tuple[str, ...]
) -> FolderInfo:
    """Complete the folder of a file that was made from ``model``, and compare its outputs with PyTorch's.

    Raises:
        ModelError: they differ by more than rounding.
    """
    reference = TorchPredictor(model, ONE_THREAD, FP32)
    return write_variant(context, base, reference, inputs=inputs, tolerance=TOLERANCE)[0]
