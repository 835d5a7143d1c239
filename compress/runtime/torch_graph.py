"""PyTorch through CUDA graphs: a pass is captured once for each shape and then replayed with a single launch.

At batch 1 a small encoder spends most of its time on launching a hundred kernels one by one; a replay launches all of
them at once. The kernels are those of eager mode, and so are the numbers, but for one thing: a captured pass always
applies the padding mask, which eager attention leaves out where a batch has no padding.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from compress.model_folder.model_info import VariantInfo
from compress.runtime.model_formats import ModelFile
from compress.runtime.predictor import Placement
from compress.runtime.torch_eager import TorchPredictor, device_time, load_on, tensors, to_arrays
from compress.tasks.base import Arrays

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

SHAPES = 256
"""Graphs cached, least recently used first out. They share one memory pool: each adds little to the largest."""

WARM_PASSES = 3
"""Passes before a capture, in which libraries choose kernels and allocate workspaces."""


@dataclass(frozen=True)
class Captured:
    """One shape's graph with the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    feed: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]


class GraphPredictor(TorchPredictor):
    """A torch module that replays captured passes; callers take turns, because a graph writes to one buffer."""

    def __init__(self, model: PreTrainedModel, placement: Placement, variant: VariantInfo) -> None:
        import torch

        super().__init__(model, placement, variant)
        self._captured: OrderedDict[tuple[int, ...], Captured] = OrderedDict()
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._turn = Lock()

    def predict(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Run one padded batch; its shape is captured when it first comes."""
        with self._turn, self._running(arrays):
            captured = self._ready(self._feed(arrays))
            captured.graph.replay()
            return to_arrays(captured.outputs)

    def device_milliseconds(self, arrays: Mapping[str, NDArray[Any]]) -> float:
        """Between CUDA events around the replay."""
        with self._turn, self._running(arrays):
            return device_time(self._ready(self._feed(arrays)).graph.replay)

    def counters(self) -> dict[str, int]:
        """Return the number of captured shapes."""
        return {"captured_shapes": len(self._captured)}

    def _ready(self, feed: dict[str, torch.Tensor]) -> Captured:
        """Return the graph of this shape, with this batch in its input buffers."""
        shape = tuple(next(iter(feed.values())).shape)
        captured = self._captured.get(shape)
        if captured is None:
            captured = self._capture(feed)
            self._captured[shape] = captured
            if len(self._captured) > SHAPES:
                self._captured.popitem(last=False)
        self._captured.move_to_end(shape)
        for name, tensor in feed.items():
            captured.feed[name].copy_(tensor)
        return captured

    def _capture(self, feed: dict[str, torch.Tensor]) -> Captured:
        """Capture a pass over permanent buffers; warm-up and capture run on a separate stream, as CUDA requires."""
        import torch

        own = {name: tensor.clone() for name, tensor in feed.items()}
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_PASSES):
                self._model(**own)
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Only this thread's calls can spoil the capture: others of the process go on using the device.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            outputs = tensors(self._model(**own))
        return Captured(graph, own, outputs)


def open_graph(model_file: ModelFile, variant: VariantInfo, placement: Placement) -> GraphPredictor:
    """Load a model folder onto the CUDA device."""
    return GraphPredictor(load_on(model_file.path, variant, placement), placement, variant)
