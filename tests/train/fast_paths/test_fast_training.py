import pytest
import torch

from compress.train.fast_paths.cpu_attention import NAME
from compress.train.fast_paths.fast_training import fast_training, width_multiple


@pytest.mark.parametrize(
    ("device", "precision", "quick"), [("cpu", "bf16", True), ("cpu", "fp32", False), ("cuda", "bf16", False)]
)
def test_attention_is_changed_on_a_cpu_alone(device, precision, quick, tiny_model):
    model = tiny_model("bert")
    before = model.config._attn_implementation
    with fast_training(model, (), None, precision, torch.device(device)):
        assert (model.config._attn_implementation == NAME) == quick
    assert model.config._attn_implementation == before


@pytest.mark.parametrize(
    ("device", "precision", "compiles", "multiple"),
    [("cpu", "bf16", False, 8), ("cpu", "fp32", False, 1), ("cuda", "bf16", False, 1), ("cuda", "bf16", True, 32)],
)
def test_widths_are_few_where_each_costs(device, precision, compiles, multiple):
    assert width_multiple(precision, torch.device(device), compiles) == multiple
