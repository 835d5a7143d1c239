"""Exports a model without attention to one file of arrays, which numpy alone computes with."""

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from compress.errors import ModelError
from compress.export.build_context import BuildContext
from compress.export.from_pytorch import take_over, write_compared
from compress.formats import FORMATS
from compress.model_folder.model_info import FolderInfo
from compress.models.encoder_parts import base_of, family_of
from compress.models.light_embeddings import LightEmbeddings
from compress.models.light_models import Convolution, LightHead
from compress.models.load_save import load


def export_numpy(context: BuildContext) -> FolderInfo:
    """Export a model folder to tables.safetensors, and compare its outputs with PyTorch's.

    Args:
        context: of the build; its source is the folder of a model without attention.

    Raises:
        ModelError: the model has attention, or its outputs differ by more than rounding.
    """
    model = load(context.source)
    family = family_of(model)
    if family.has_attention:
        raise ModelError(
            f"numpy runs students without attention (static, conv); {context.source} is a {family.name}.",
            hint="export it to onnx, openvino or another format",
        )
    base = take_over(context, model)
    save_file(tables_of(model), context.work / FORMATS["numpy"].files[0])
    return write_compared(context, model, base, family.inputs)


def tables_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the arrays of a model by the names that `runtime.numpy_runtime` reads."""
    embeddings = base_of(model).get_submodule("embeddings")
    assert isinstance(embeddings, LightEmbeddings)
    with torch.no_grad():
        arrays = {"pieces": embeddings.word_embeddings.weight * embeddings.piece_weights.weight}
        if embeddings.longest > 1:
            arrays |= {"ngrams": embeddings.ngram_embeddings.weight, "ngram_weights": embeddings.ngram_weights.weight}
        if embeddings.expansion is not None:
            arrays["expansion"] = embeddings.expansion.weight.T
        layers = [module for module in model.modules() if isinstance(module, Convolution)]
        for depth, layer in enumerate(layers):
            arrays |= {f"convolution.{depth}.{name}": values for name, values in _convolution(layer).items()}
        head = next((module for module in model.modules() if isinstance(module, LightHead)), None)
        if head is not None:
            arrays |= {"dense": head.dense.weight.T, "dense_bias": head.dense.bias}
            arrays |= {"output": head.out_proj.weight.T, "output_bias": head.out_proj.bias}
        projection = getattr(model, "projection", None)
        if projection is not None:
            arrays["projection"] = projection.weight.T
        return {name: values.detach().float().contiguous() for name, values in arrays.items()}


def _convolution(module: Convolution) -> dict[str, Tensor]:
    assert module.depthwise.bias is not None
    return {
        "kernel": module.depthwise.weight[:, 0].T,
        "kernel_bias": module.depthwise.bias,
        "pointwise": module.pointwise.weight.T,
        "bias": module.pointwise.bias,
    }
