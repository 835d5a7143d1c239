"""What every export of a model folder takes over from it, and is compared with: the model in PyTorch."""

from __future__ import annotations

from transformers import PreTrainedModel

from compress.data.tokenizer import TOKENIZER_FILE
from compress.export.build_context import BuildContext
from compress.export.comparison.golden_inputs import single_texts
from compress.export.comparison.parity import TOLERANCE
from compress.export.write_variant import write_variant
from compress.families import max_positions
from compress.model_info import FolderInfo, find_info
from compress.models.encoder_parts import shape_of
from compress.models.load_save import load_tokenizer
from compress.runtime.model_formats import FP32
from compress.runtime.predictor import ONE_THREAD
from compress.runtime.torch_eager import TorchPredictor
from compress.sentence_transformers_files import task_of_folder


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
