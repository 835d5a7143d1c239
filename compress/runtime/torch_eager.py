"""PyTorch eager: any model folder, in fp32, bf16 or fp16."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.environment import require
from compress.errors import DeviceUnavailable, ModelError, nearest
from compress.model_folder.model_info import VariantInfo
from compress.runtime.model_formats import ModelFile
from compress.runtime.predictor import Placement, check_inputs, describe_predictor, load_failure, run_failure
from compress.tasks.base import Arrays

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""The torch type of each precision."""

TORCH_ERRORS = (RuntimeError, IndexError, ValueError, MemoryError)
"""Errors of torch for a batch that it cannot run: too large, longer than the model's positions, unknown tokens."""


class TorchPredictor:
    """A torch module as a Predictor; other runtimes of torch override `forward`."""

    def __init__(self, model: PreTrainedModel, placement: Placement, variant: VariantInfo) -> None:
        from compress.models.encoder_parts import family_of

        self.inputs = family_of(model).inputs
        self._model = model
        self._placement = placement
        self._variant = variant

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch; on CUDA the copies to and from the device are part of it."""
        with self._running(arrays):
            return to_arrays(self.forward(self._feed(arrays)))

    def device_milliseconds(self, arrays: Mapping[str, NDArray[Any]]) -> float:
        """Between CUDA events around the pass: gaps count where the host launches slower than the device computes."""
        with self._running(arrays):
            feed = self._feed(arrays)
            return device_time(lambda: self.forward(feed))

    def forward(self, feed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One pass over tensors that are on the device."""
        return tensors(self._model(**feed))

    def describe(self) -> dict[str, Any]:
        """Describe the configuration."""
        import torch

        cuda = self._placement.device == "cuda"
        return describe_predictor(
            self._variant,
            self._placement,
            version=torch.__version__,
            options={"attention": self._model.config._attn_implementation, **self.counters()},
            uses=f"CUDA {torch.version.cuda}" if cuda else torch.backends.cpu.get_cpu_capability(),
        )

    def counters(self) -> dict[str, int]:
        """Return what the runtime counts."""
        return {}

    @contextmanager
    def _running(self, arrays: Mapping[str, NDArray[Any]]) -> Iterator[None]:
        """Disable gradients, set the number of threads, and translate errors."""
        import torch

        check_inputs(self.inputs, arrays)
        with torch.inference_mode(), THREADS.use(self._placement.threads):
            try:
                yield
            except TORCH_ERRORS as error:
                given = {name: np.asarray(arrays[name]) for name in self.inputs}
                raise run_failure("PyTorch", self._variant.name, given, error) from error

    def _feed(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
        import torch

        return {name: torch.from_numpy(np.asarray(arrays[name])).to(self._model.device) for name in self.inputs}


class Threads:
    """Torch's number of threads, which is global to the process: set while predictors run, and restored afterwards.

    Concurrent callers share it: the first sets it and the last restores it. Predictors with different numbers that run
    at the same time in one process would use each other's number.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._before = 0

    @contextmanager
    def use(self, count: int) -> Iterator[None]:
        """Run with ``count`` threads."""
        import torch

        with self._lock:
            if self._inside == 0:
                self._before = torch.get_num_threads()
            self._inside += 1
            # Queried by every caller: OpenMP stores the number per thread.
            if torch.get_num_threads() != count:
                torch.set_num_threads(count)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0 and self._before != torch.get_num_threads():
                    torch.set_num_threads(self._before)


THREADS = Threads()


def open_torch(model_file: ModelFile, variant: VariantInfo, placement: Placement) -> TorchPredictor:
    """Load a model folder into torch."""
    return TorchPredictor(load_on(model_file.path, variant, placement), placement, variant)


def load_on(path: Path, variant: VariantInfo, placement: Placement) -> PreTrainedModel:
    """Return a model on its device in its precision."""
    torch = require("torch", "train")
    from compress.models.load_save import load

    if variant.precision not in PRECISIONS:
        raise ModelError(f"torch has no precision '{variant.precision}'{nearest(variant.precision, PRECISIONS)}")
    if placement.device == "cpu" and variant.precision == "fp16":  # some kernels are missing there, the rest is slow
        raise DeviceUnavailable(f"{variant.name} runs on cuda, not on cpu.")
    if placement.device == "cuda" and not torch.cuda.is_available():
        raise DeviceUnavailable("torch sees no CUDA device on this machine.")
    try:
        model = load(path)
        torch.nn.Module.to(model, device=placement.device, dtype=getattr(torch, PRECISIONS[variant.precision]))
    except (RuntimeError, MemoryError) as error:
        raise load_failure("PyTorch", path, error) from error
    return model


def device_time(run: Callable[[], object]) -> float:
    """Return the milliseconds that the CUDA device took for what ``run`` launches, by its own clock."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def tensors(outputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the outputs that are tensors, by name."""
    import torch

    return {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}


def to_arrays(outputs: Mapping[str, torch.Tensor]) -> Arrays:
    """Copy tensors to the host as float32 arrays."""
    return {name: value.float().cpu().numpy() for name, value in outputs.items()}
