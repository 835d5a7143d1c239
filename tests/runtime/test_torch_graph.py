"""CUDA graphs; all but the refusal needs a device."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from compress.errors import DeviceUnavailable
from compress.runtime import RUN_MODES, open_predictor, torch_graph
from compress.runtime.predictor import Placement, TimedOnDevice

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")


def batch(rows, length):
    generator = np.random.default_rng(rows * 100 + length)
    mask = np.arange(length) < np.linspace(length, max(1, length // 2), rows).astype(int)[:, None]
    ids = np.where(mask, generator.integers(4, 20, (rows, length)), 0)
    return {"input_ids": ids, "attention_mask": mask.astype(np.int64), "token_type_ids": np.zeros_like(ids)}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_cuda_it_is_unavailable(tiny_folder):
    with pytest.raises(DeviceUnavailable, match="no CUDA device"):
        open_predictor(tiny_folder("bert"), Placement("cuda"), RUN_MODES["torch-graph-bf16"])


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("variant", [RUN_MODES["torch-graph-bf16"], RUN_MODES["torch-graph-fp16"]])
def test_replays_compute_what_the_cpu_computes(tiny_folder, variant):
    folder = tiny_folder("bert")
    graph, exact = open_predictor(folder, Placement("cuda"), variant), open_predictor(folder)
    assert isinstance(graph, TimedOnDevice)
    for _ in range(2):
        for rows, length in ((1, 9), (3, 9), (8, 33), (1, 1)):
            arrays = batch(rows, length)
            assert np.abs(graph.predict(arrays)["logits"] - exact.predict(arrays)["logits"]).max() < 0.5
    assert graph.describe()["options"]["captured_shapes"] == 4
    assert graph.device_milliseconds(batch(3, 9)) > 0


@pytest.mark.gpu
@needs_cuda
def test_the_cache_of_shapes_is_bounded(tiny_folder, monkeypatch):
    monkeypatch.setattr(torch_graph, "SHAPES", 2)
    graph = open_predictor(tiny_folder("bert"), Placement("cuda"), RUN_MODES["torch-graph-bf16"])
    first = graph.predict(batch(2, 5))["logits"]
    for length in (6, 7, 8):
        graph.predict(batch(2, length))
    assert graph.describe()["options"]["captured_shapes"] == 2
    np.testing.assert_array_equal(graph.predict(batch(2, 5))["logits"], first)


@pytest.mark.gpu
@needs_cuda
def test_callers_take_turns(tiny_folder):
    graph = open_predictor(tiny_folder("bert"), Placement("cuda"), RUN_MODES["torch-graph-bf16"])
    batches = [batch(2, 5 + index % 7) for index in range(64)]
    alone = [graph.predict(arrays)["logits"] for arrays in batches]
    with ThreadPoolExecutor(8) as callers:
        together = [answer["logits"] for answer in callers.map(graph.predict, batches)]
    for expected, got in zip(alone, together, strict=True):
        np.testing.assert_array_equal(expected, got)
