"""Pooling and dense layer of sentence-transformers' folders for embedding models: from a folder to a model and back."""

from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from compress.errors import ModelError
from compress.model_folder.model_info import TaskInfo
from compress.model_folder.sentence_transformers_files import (
    DENSE,
    MODULES,
    NORMALIZE,
    PICKLED,
    POOLING,
    TYPES,
    WEIGHTS,
    check_modules,
    list_modules,
    pooling_mode,
    pooling_settings,
    read_settings,
    write_json,
    write_settings,
)
from compress.models.embedding_model import ACTIVATIONS, POOLINGS, embedding_size, projection_layer, set_pooling

WEIGHT, BIAS = "linear.weight", "linear.bias"


class Layout(NamedTuple):
    """What a folder of sentence-transformers does with the encoder's outputs."""

    pooling: str
    size: int | None = None
    """Width of its dense layer, if it has one."""
    weights: Path | None = None
    bias: bool = False
    activation: str = "Identity"
    """A key of `ACTIVATIONS`."""
    normalize: bool = True

    def dense(self) -> tuple[Tensor, Tensor | None] | None:
        """Return the weight (size, width) of its dense layer and the bias, if it has them."""
        if self.weights is None:
            return None
        is_pickled = self.weights.name == PICKLED
        read = torch.load(self.weights, "cpu", weights_only=True) if is_pickled else load_file(self.weights)
        return read[WEIGHT], read.get(BIAS)

    def set_in(self, config: PreTrainedConfig, folder: Path, *, trains: bool) -> None:
        """Set it in an encoder's config.

        Args:
            config: of the encoder.
            folder: for the error.
            trains: the model is trained, distilled or pruned here: its vectors become unit vectors, and a pooling or a
                dense layer that no student of ours has is refused.
        """
        if trains and (self.pooling not in POOLINGS or self.bias or self.activation != "Identity"):
            raise ModelError(
                f"{folder} can be exported, but is not supported in a recipe: it pools by {self.pooling}, and its dense"
                f" layer has the activation {self.activation}, bias: {self.bias}; expected {' or '.join(POOLINGS)}, and"
                " a linear layer without bias."
            )
        set_pooling(config, self.pooling, self.size)
        if not trains:
            keys = {"sentence_bias": self.bias, "sentence_activation": self.activation}
            config.update({**keys, "sentence_normalize": self.normalize})


def read_layout(folder: Path) -> Layout:
    """Return the layout in modules.json and the folders it names; raise `ModelError` if it is not supported."""
    check_modules(folder)
    modules = list_modules(folder)
    folders, normalize = dict(modules), modules[-1][0] == NORMALIZE
    layout = Layout(pooling_mode(folders["Pooling"] / "config.json"), normalize=normalize)
    return _with_dense(layout, folders["Dense"]) if "Dense" in folders else layout


def write_layout(folder: Path, model: PreTrainedModel, task: TaskInfo | None) -> None:
    """Write the modules of an embedding model into its folder."""
    config, dense = model.config, projection_layer(model)
    parts = {"": "Transformer", POOLING: "Pooling", **({DENSE: "Dense"} if dense is not None else {})}
    if getattr(config, "sentence_normalize", True):
        parts[f"{len(parts)}_{NORMALIZE}"] = NORMALIZE
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": TYPES + kind}
        for index, (path, kind) in enumerate(parts.items())
    ]
    write_json(folder / MODULES, listed)
    width = int(config.hidden_size)
    write_json(folder / POOLING / "config.json", pooling_settings(config.pooling, width))
    if dense is not None:
        name = getattr(config, "sentence_activation", "Identity")
        package = "linear" if name == "Identity" else "activation"
        settings = {
            "in_features": width,
            "out_features": embedding_size(model),
            "bias": "bias" in dict(dense.named_parameters()),
        }
        write_json(
            folder / DENSE / "config.json", settings | {"activation_function": f"torch.nn.modules.{package}.{name}"}
        )
        weights = {f"linear.{key}": value.detach().contiguous() for key, value in dense.named_parameters()}
        save_file(weights, folder / DENSE / WEIGHTS, {"format": "pt"})
    write_settings(folder, task)


def _with_dense(layout: Layout, folder: Path) -> Layout:
    config = read_settings(folder / "config.json")
    package, _, activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")
    inputs = {config.get(key) or "sentence_embedding" for key in ("module_input_name", "module_output_name")}
    weights = next((folder / name for name in (WEIGHTS, PICKLED) if (folder / name).is_file()), None)
    is_torch = package.startswith("torch.nn.") and activation in ACTIVATIONS
    if config.get("use_residual") or inputs != {"sentence_embedding"} or not is_torch or weights is None:
        raise ModelError(
            f"{folder} is not supported, only a dense layer on the text's vector in {WEIGHTS}, followed by"
            f" {', '.join(ACTIVATIONS)}; it has the activation {activation}, residual:"
            f" {bool(config.get('use_residual'))}, reads {' and '.join(sorted(inputs))}."
        )
    bias = bool(config.get("bias", True))
    return layout._replace(size=int(config["out_features"]), weights=weights, bias=bias, activation=activation)
