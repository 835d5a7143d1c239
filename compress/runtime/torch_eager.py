"""PyTorch eager: any model folder, in fp32, bf16 or fp16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import require
from compress.errors import ModelError, NotHere, nearest
from compress.folder import FolderInfo, VariantInfo
from compress.runtime.predictor import Place
from compress.tasks.kind import Arrays

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""The name of the torch type of each precision."""


class TorchPredictor:
    """A torch module behind the Predictor interface."""

    def __init__(self, model: PreTrainedModel, inputs: tuple[str, ...], place: Place, variant: VariantInfo) -> None:
        self.inputs = inputs
        self._model = model
        self._place = place
        self._variant = variant

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch; on CUDA the copies to and from the device are part of it."""
        import torch

        missing = [name for name in self.inputs if name not in arrays]
        if missing:
            raise ModelError(f"the model takes {', '.join(self.inputs)}; {', '.join(missing)} was not given.")
        with torch.inference_mode(), _threads(self._place.threads):
            feed = {name: torch.from_numpy(np.asarray(arrays[name])).to(self._model.device) for name in self.inputs}
            outputs = self._model(**feed)
            return {
                name: value.float().cpu().numpy() for name, value in outputs.items() if isinstance(value, torch.Tensor)
            }

    def describe(self) -> dict[str, Any]:
        """What it runs with."""
        import torch

        return {
            "runtime": "torch",
            "version": torch.__version__,
            "device": self._place.device,
            "device_name": torch.cuda.get_device_name() if self._place.device == "cuda" else None,
            "threads": self._place.threads,
            "precision": self._variant.precision,
            "attention": self._model.config._attn_implementation,
        }


def open_torch(path: Path, info: FolderInfo | None, variant: VariantInfo, place: Place) -> TorchPredictor:
    """Load a model folder into torch."""
    torch = require("torch", "train")
    from compress.models.families import family_of
    from compress.models.folder import load

    if variant.precision not in PRECISIONS:
        raise ModelError(f"torch has no precision '{variant.precision}'{nearest(variant.precision, PRECISIONS)}")
    if place.device == "cuda" and not torch.cuda.is_available():
        raise NotHere("torch sees no CUDA device on this machine.")
    model = load(path)
    torch.nn.Module.to(model, device=place.device, dtype=getattr(torch, PRECISIONS[variant.precision]))
    return TorchPredictor(model, info.inputs if info else family_of(model).inputs, place, variant)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Run with so many threads, and leave the number as it was: it is torch's own, shared with a training nearby."""
    import torch

    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
