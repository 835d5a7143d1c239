"""Model folders compiled by torch."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from compress.errors import DeviceUnavailable, ModelError
from compress.runtime import RUN_MODES, open_predictor
from compress.runtime.predictor import Placement

KINDS = [((3, 9), (8, 33), (2, 64)), ((1, 9), (1, 30))]
"""Shapes that one graph serves, by whether there is one row."""


def batch(predictor, rows, length):
    generator = np.random.default_rng(rows * 100 + length)
    arrays = {"input_ids": generator.integers(4, 20, (rows, length))}
    arrays["attention_mask"] = np.ones((rows, length), dtype=np.int64)
    arrays["attention_mask"][-1, max(1, length // 2) :] = 0
    arrays["token_type_ids"] = np.zeros((rows, length), dtype=np.int64)
    return {name: arrays[name] for name in predictor.inputs}


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    """Torch caches what it compiled by the code of a forward, whichever test and model it was for."""
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_one_graph_serves_all_shapes_with_the_eager_outputs(tiny_folder, family):
    folder = tiny_folder(family)
    compiled, eager = open_predictor(folder, variant=RUN_MODES["torch-compiled"]), open_predictor(folder)
    assert compiled.describe()["options"]["compiled_graphs"] == 0
    for graphs, shapes in enumerate(KINDS, start=1):
        for rows, length in shapes:
            arrays = batch(compiled, rows, length)
            expected, got = eager.predict(arrays)["logits"], compiled.predict(arrays)["logits"]
            np.testing.assert_allclose(got, expected, atol=1e-4)
            assert 1 <= compiled.describe()["options"]["compiled_graphs"] <= graphs
    facts = compiled.describe()
    assert (facts["runtime"], facts["precision"]) == ("torch-compiled", "fp32")
    arrays = [batch(compiled, 2 + index % 3, 5 + index % 7) for index in range(32)]
    with ThreadPoolExecutor(4) as callers:
        together = list(callers.map(compiled.predict, arrays))
    for given, got in zip(arrays, together, strict=True):
        np.testing.assert_allclose(got["logits"], eager.predict(given)["logits"], atol=1e-4)
    assert compiled.describe()["options"]["compiled_graphs"] <= len(KINDS)


@pytest.mark.slow
def test_callers_may_come_at_once_before_anything_is_compiled(tiny_folder):
    folder = tiny_folder("bert")
    compiled, eager = open_predictor(folder, variant=RUN_MODES["torch-compiled"]), open_predictor(folder)
    arrays = [batch(compiled, 2, 5 + index) for index in range(8)]
    with ThreadPoolExecutor(4) as callers:
        together = list(callers.map(compiled.predict, arrays))
    for given, got in zip(arrays, together, strict=True):
        np.testing.assert_allclose(got["logits"], eager.predict(given)["logits"], atol=1e-4)
    assert compiled.graphs == 1


@pytest.mark.slow
def test_a_first_batch_with_as_many_rows_as_tokens_has_a_graph_of_its_own(tiny_folder):
    folder = tiny_folder("distilbert")
    compiled, eager = open_predictor(folder, variant=RUN_MODES["torch-compiled"]), open_predictor(folder)
    for rows, length, kinds in ((6, 6, 1), (3, 9, 2), (8, 33, 2), (7, 7, 2)):
        arrays = batch(compiled, rows, length)
        np.testing.assert_allclose(compiled.predict(arrays)["logits"], eager.predict(arrays)["logits"], atol=1e-4)
        # Whatever is compiled is of a kind that was not seen: it waits for the lock and goes by COMPILING. Whether
        # equal sizes get a graph of their own is torch's to say: with one core it has been seen to make just one.
        assert compiled.graphs <= len(compiled._seen) == kinds


@pytest.mark.slow
def test_bf16_is_close_by(tiny_folder):
    folder = tiny_folder("bert")
    compiled, eager = open_predictor(folder, variant=RUN_MODES["torch-compiled-bf16"]), open_predictor(folder)
    arrays = batch(compiled, 3, 9)
    off = np.abs(compiled.predict(arrays)["logits"] - eager.predict(arrays)["logits"]).max()
    assert 0 < off < 0.5


@pytest.mark.slow
def test_a_batch_that_it_cannot_run_is_reported_with_its_shape(tiny_folder):
    compiled = open_predictor(tiny_folder("bert"), variant=RUN_MODES["torch-compiled"])
    with pytest.raises(ModelError, match=r"cannot .* torch-compiled"):
        compiled.predict(batch(compiled, 2, 100))


def test_what_cannot_be_compiled_is_an_error_and_never_runs_eagerly(tiny_folder, monkeypatch):
    compiled = open_predictor(tiny_folder("bert"), variant=RUN_MODES["torch-compiled"])

    def forward(input_ids, **others):
        torch._dynamo.graph_break()
        return {"logits": input_ids}

    monkeypatch.setattr(compiled._model, "forward", forward)
    with pytest.raises(ModelError, match=r"torch\.compile cannot compile torch-compiled"):
        compiled.predict(batch(compiled, 2, 5))


def no_compiler():
    raise torch._inductor.exc.InvalidCxxCompiler


def test_without_a_compiler_it_is_unavailable(tiny_folder, monkeypatch):
    # Not by way of Inductor's config: putting an entry of it back hides the entry for good.
    monkeypatch.setattr(torch._inductor.cpp_builder, "get_cpp_compiler", no_compiler)
    with pytest.raises(DeviceUnavailable, match=r"needs a C\+\+ compiler"):
        open_predictor(tiny_folder("bert"), variant=RUN_MODES["torch-compiled"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_cuda_computes_what_the_cpu_computes_and_is_timed(tiny_folder, precision):
    folder = tiny_folder("bert")
    variant = RUN_MODES["torch-compiled"].model_copy(
        update={"name": f"torch-compiled-{precision}", "precision": precision}
    )
    compiled, exact = open_predictor(folder, Placement("cuda"), variant), open_predictor(folder)
    for graphs, shapes in enumerate(KINDS, start=1):
        for rows, length in shapes:
            arrays = batch(compiled, rows, length)
            off = np.abs(compiled.predict(arrays)["logits"] - exact.predict(arrays)["logits"]).max()
            assert off < (1e-3 if precision == "fp32" else 0.5)
            assert compiled.graphs == graphs
            assert compiled.device_milliseconds(arrays) > 0


@pytest.mark.slow
def test_no_helper_processes_stay_behind(tiny_folder):
    code = f"""
import numpy as np, psutil
from pathlib import Path
from compress.runtime import open_predictor
from compress.runtime import RUN_MODES
predictor = open_predictor(Path({str(tiny_folder("distilbert"))!r}), variant=RUN_MODES["torch-compiled"])
predictor.predict({{name: np.ones((2, 5), dtype=np.int64) for name in predictor.inputs}})
print(len(psutil.Process().children(recursive=True)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr
