"""Model folders in torch."""

import numpy as np
import pytest
import torch

from compress.errors import DeviceUnavailable, ModelError
from compress.runtime import RUN_MODES, open_predictor
from compress.runtime.predictor import Placement


@pytest.fixture(scope="module")
def folder(tiny_folder):
    return tiny_folder("bert")


@pytest.fixture
def arrays():
    ids = np.array([[2, 5, 6, 3], [2, 7, 3, 0]])
    mask = (ids > 0).astype(np.int64)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids), "labels": np.array([0, 1])}


def test_it_returns_the_outputs_of_the_model(folder, arrays):
    from compress.models import load

    predictor = open_predictor(folder)
    outputs = predictor.predict(arrays)
    feed = {name: torch.from_numpy(array) for name, array in arrays.items() if name != "labels"}
    with torch.no_grad():
        expected = load(folder)(**feed).logits.numpy()
    assert list(outputs) == ["logits"]
    np.testing.assert_array_equal(outputs["logits"], expected)


def test_the_family_decides_about_inputs(tiny_folder, arrays):
    assert open_predictor(tiny_folder("distilbert")).inputs == ("input_ids", "attention_mask")
    with pytest.raises(ModelError, match="token_type_ids was not given"):
        open_predictor(tiny_folder("bert")).predict({k: v for k, v in arrays.items() if k != "token_type_ids"})


def test_a_plain_hugging_face_folder_opens(tiny_model, tmp_path, arrays):
    tiny_model("roberta").save_pretrained(tmp_path)
    predictor = open_predictor(tmp_path)
    assert predictor.inputs == ("input_ids", "attention_mask")
    assert predictor.predict(arrays)["logits"].shape == (2, 2)


def test_bf16_outputs_are_float32_and_close_by(folder, arrays):
    predictor = open_predictor(folder, variant=RUN_MODES["torch-bf16"])
    exact, rounded = open_predictor(folder).predict(arrays)["logits"], predictor.predict(arrays)["logits"]
    assert rounded.dtype == np.float32
    assert 0 < np.abs(exact - rounded).max() < 0.5
    assert predictor.describe()["precision"] == "bf16"


def test_an_unknown_precision_is_named(folder):
    with pytest.raises(ModelError, match="did you mean"):
        open_predictor(folder, variant=RUN_MODES["torch-bf16"].model_copy(update={"precision": "bf6"}))


def test_its_number_of_threads_is_restored(folder, arrays, monkeypatch):
    before, seen = torch.get_num_threads(), []
    predictor = open_predictor(folder, Placement(threads=before + 1))
    inside = predictor._model.forward
    monkeypatch.setattr(
        predictor._model, "forward", lambda **feed: (seen.append(torch.get_num_threads()), inside(**feed))[1]
    )
    predictor.predict(arrays)
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


def test_fp16_is_for_cuda(folder):
    for name in ("torch-fp16", "torch-compiled-fp16"):
        with pytest.raises(DeviceUnavailable, match=f"{name} runs on cuda, not on cpu"):
            open_predictor(folder, variant=RUN_MODES[name])


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_missing_cuda_is_unavailable(folder):
    with pytest.raises(DeviceUnavailable, match="no CUDA device"):
        open_predictor(folder, Placement("cuda"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_cuda_computes_what_the_cpu_computes(folder, arrays, precision):
    variant = RUN_MODES["torch-bf16"].model_copy(update={"name": f"torch-{precision}", "precision": precision})
    predictor = open_predictor(folder, Placement("cuda"), variant)
    exact = open_predictor(folder).predict(arrays)["logits"]
    assert np.abs(predictor.predict(arrays)["logits"] - exact).max() < (1e-3 if precision == "fp32" else 0.5)
    assert predictor.describe()["device_name"]
