"""Exports to LiteRT (TensorFlow Lite), the runtime of Android: fixed shapes, one signature for each of a few lengths.

All signatures use the same weights. A runner picks the shortest length that holds a row, as `runtime/litert_runtime.py`
does.
"""

from torch import Tensor, nn
from transformers import PreTrainedModel

from compress.environment import require
from compress.environment.libraries import silent_native_code
from compress.export.build_context import BuildContext
from compress.export.conversion import converting
from compress.export.from_pytorch import example_inputs, longest_input, take_over, write_compared
from compress.formats import FORMATS
from compress.model_folder.model_info import FolderInfo
from compress.models.encoder_parts import family_of
from compress.models.load_save import load
from compress.runtime.torch_eager import tensors

SHORTEST = 16
"""The shortest length; each further one is twice as long, so that a row is padded to less than twice its own."""


def export_litert(context: BuildContext) -> FolderInfo:
    """Export a model folder to model.tflite, and compare its outputs with PyTorch's.

    Args:
        context: of the build; its source is a model folder, or a plain Hugging Face one.

    Raises:
        ModelError: the model cannot be exported, or its outputs differ by more than rounding.
    """
    model = load(context.source)
    base = take_over(context, model)
    with silent_native_code():
        library = require("litert_torch", "litert")
    with converting(model, "LiteRT"):
        library.config.show_progress = False
        converter = library.Converter()
        for length in lengths(longest_input(model, base)):
            row = example_inputs(model, "litert", batch_size=1, sequence_length=length)
            converter.add_signature(f"length_{length}", _NamedTensors(model), sample_kwargs=row)
        converted = converter.convert()
        with silent_native_code():  # it writes its count of operations to stderr
            converted.export(str(context.work / FORMATS["litert"].files[0]))
    return write_compared(context, model, base, family_of(model).inputs)


def lengths(longest: int) -> list[int]:
    """Return the lengths of a file: `SHORTEST`, and twice the one before up to ``longest``, which is the last."""
    each, found = SHORTEST, []
    while each < longest:
        found.append(each)
        each *= 2
    return [*found, longest]


class _NamedTensors(nn.Module):
    """A model whose outputs are a plain dictionary of tensors, after which the signature names them."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, **arrays: Tensor) -> dict[str, Tensor]:
        return tensors(self.model(**arrays))
