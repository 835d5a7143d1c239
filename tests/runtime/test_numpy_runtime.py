import numpy as np
import pytest
from safetensors.torch import save_file

from compress.errors import ModelError
from compress.export.builders.numpy_tables import tables_of
from compress.models.light_models import LIGHT_CONFIGS
from compress.runtime.model_formats import ModelFile, export_variant
from compress.runtime.numpy_runtime import PACKED, SCALE, open_numpy, unpacked
from compress.runtime.predictor import ONE_THREAD
from tests.models.test_light_models import CLS, LONG, SEP, SETTINGS, TEXT, make_light, outputs_of


def opened(model, folder):
    model.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    save_file(tables_of(model), folder / "tables.safetensors")
    file = ModelFile(folder, "numpy", folder / "tables.safetensors", None)
    return open_numpy(file, export_variant("numpy"), ONE_THREAD)


def batch(*rows):
    width = max(map(len, rows))
    ids = np.array([[*row, *[0] * (width - len(row))] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64)}


CASES = [
    *((kind, "sequence-classification", settings) for kind in LIGHT_CONFIGS for settings in SETTINGS),
    ("static", "sentence-embedding", {}),
    ("conv", "sentence-embedding", {"factors": 4}),
    ("conv", "token-classification", {}),
]


@pytest.mark.parametrize(("kind", "head", "settings"), CASES, ids=str)
def test_it_computes_what_torch_does(kind, head, settings, tmp_path):
    model = make_light(kind, head, **settings)
    predictor = opened(model, tmp_path)
    for rows in ([TEXT, LONG], [TEXT], [[CLS, SEP, SEP], [CLS, 7, SEP, SEP]], [[7], [8]]):
        (found,) = predictor.predict(batch(*rows)).values()
        wanted = outputs_of(model, *rows).numpy()
        if found.ndim == 3:
            real = batch(*rows)["attention_mask"][..., None]
            found, wanted = found * real, wanted * real
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_piece_that_it_does_not_have_is_refused(tmp_path):
    predictor = opened(make_light(), tmp_path)
    with pytest.raises(ModelError, match="outside of the 300"):
        predictor.predict(batch([CLS, 300, SEP]))
    with pytest.raises(ModelError, match="of one shape and not empty"):
        predictor.predict({"input_ids": np.zeros((0, 3), int), "attention_mask": np.zeros((0, 3), int)})
    with pytest.raises(ModelError, match="attention_mask was not given"):
        predictor.predict({"input_ids": np.zeros((1, 3), int)})


@pytest.mark.parametrize("content", [b"", b"{}", (8).to_bytes(8, "little") + b"x" * 100])
def test_a_damaged_file_is_one_message(content, tmp_path):
    opened(make_light(), tmp_path)
    path = tmp_path / "tables.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="cannot read"):
        open_numpy(ModelFile(tmp_path, "numpy", path, None), export_variant("numpy"), ONE_THREAD)


def test_arrays_are_unpacked():
    stored = {
        "a": np.array([[1, -2]], np.int8),
        "a" + SCALE: np.array([0.5], np.float16),
        "b" + PACKED: np.array([[0x08 | 0xF0]], np.uint8),
        "b" + SCALE: np.array([[2.0]], np.float16),
        "c": np.array([3], np.float16),
    }
    found = {name: values.tolist() for name, values in unpacked(stored).items()}
    assert found == {"a": [[0.5, -1.0]], "b": [[0.0, 14.0]], "c": [3.0]}
