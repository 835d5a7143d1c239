"""Teachers whose head reads four layers, in every format: within the format's limits, or refused with the reason."""

import functools
from importlib.util import find_spec

import pytest
import torch

from compress.errors import ModelError
from compress.export.comparison.parity_check import LIMITS
from compress.model_folder.model_info import TaskInfo, read_info
from compress.models import load_model
from compress.variants import VARIANTS, describe_missing, missing_extras, missing_programs
from tests.quantize.sample_rows import sample_batches
from tests.variant_builder import build

CONVERTED = [variant for variant in VARIANTS.values() if variant.builder and "cpu" in variant.devices]
FOR_ATTENTION = [variant for variant in CONVERTED if variant.format != "numpy"]  # numpy runs models without
WITHOUT_LSTM = ("executorch-fp32", "executorch-int8", "onnx-int8-neural-compressor")
ROWS = [{"words": ["a", "good", "film"], "label": [0, 1, 2]}, {"words": ["so", "dull"], "label": [0, 0]}] * 12
QUANTIZING = {"calibration": sample_batches, "train_rows": lambda: ROWS, "settings": {"max_drop": 1.0}}

pytestmark = pytest.mark.slow


def skip_without_libraries(name):
    """Skip a test where what builds a variant is not installed."""
    form = VARIANTS[name].format
    modules = {each: extra for each, extra in VARIANTS[name].build_modules.items() if find_spec(each) is None}
    if missing := describe_missing(missing_extras(form) | modules, missing_programs(form)):
        pytest.skip(f"not installed: {missing}")


@pytest.fixture(scope="module")
def exported(tiny_model, tiny_folder, tmp_path_factory):
    """Makes an export of a tagger with a head on four layers, and what it is converted from, once."""
    task = TaskInfo(
        name="films",
        kind="token_classification",
        labels=("O", "B-x", "I-x"),
        metric="f1",
        text=("words",),
        max_length=32,
    )

    @functools.cache
    def source(head):
        folder = tiny_folder(tiny_model("bert", head="Model", num_hidden_layers=4), task=None)
        model = load_model(folder, task, features="last4", head_layers=head).eval()
        with torch.no_grad():
            model.classifier.weight.mul_(20)  # clear decisions
        return tiny_folder(model, task)

    @functools.cache
    def make(head, name):
        folder, needed = tmp_path_factory.mktemp(name), VARIANTS[name].needs
        build(name, make(head, needed) if needed else source(head), folder, **QUANTIZING)
        return folder

    return make


@pytest.mark.parametrize("head", [None, "bilstm"])
@pytest.mark.parametrize("name", [variant.name for variant in FOR_ATTENTION])
def test_an_export_decides_as_pytorch(name, head, exported, assets):
    skip_without_libraries(name)
    if head and name in WITHOUT_LSTM:
        with pytest.raises(ModelError, match="has no LSTM for rows of any length, and this model's head is a BiLSTM"):
            exported(head, name)
        return
    parity, limit = read_info(exported(head, name)).variant.parity, LIMITS[VARIANTS[name].precision]
    assert parity["agreement"] >= limit.agreement
    if VARIANTS[name].precision != "int8":
        assert parity["max_abs_difference"] < limit.difference * max(limit.least_output, parity["largest_output"])
