"""Counted from shapes, and checked against what torch counts while it runs."""

import pytest

from compress.measure.resources.footprint import flops
from compress.model_folder.model_info import ShapeInfo

MINI = ShapeInfo(
    family="bert",
    hidden=384,
    heads=(12,) * 6,
    ffn=(1536,) * 6,
    vocabulary=30522,
    parameters=22713216,
    embedding_parameters=11917440,
    head_size=32,
)


def test_a_layer_by_hand():
    one = MINI.model_copy(update={"hidden": 4, "heads": (2,), "ffn": (8,), "head_size": 2})
    projections, attention, ffn = 4 * 2 * 4 * 4, 2 * 2 * 3 * 4, 2 * 2 * 4 * 8
    assert flops(one, 3) == 3 * (projections + attention + ffn)


def test_flops_are_linear_in_rows_and_superlinear_in_length():
    assert flops(MINI, 128, 8) == 8 * flops(MINI, 128)
    assert flops(MINI, 256) > 2 * flops(MINI, 128)


def test_pruned_parts_are_not_counted():
    pruned = MINI.model_copy(update={"heads": (12, 4, 12, 12, 12, 12), "ffn": (1536,) * 5 + (384,)})
    saved = 128 * (2 * 384 * 4 * 8 * 32 + 4 * 128 * 8 * 32 + 4 * 384 * (1536 - 384))
    assert flops(MINI, 128) - flops(pruned, 128) == saved


def test_unknown_shapes_have_no_flops():
    assert flops(MINI.model_copy(update={"head_size": None}), 128) is None
    assert flops(MINI.model_copy(update={"family": "mobilebert"}), 128) is None


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("bert", {}),
        ("distilbert", {}),
        ("electra", {"embedding_size": 8}),
        ("albert", {"embedding_size": 8}),
        ("modernbert", {"local_attention": 4}),
    ],
)
def test_torch_counts_the_same(model_type, changes):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from torch.utils.flop_counter import FlopCounterMode

    from compress.models.encoder_parts import shape_of

    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "max_position_embeddings": 32}
    depth = {"num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}
    config = transformers.AutoConfig.for_model(model_type, **(sizes | depth | changes))
    if model_type == "distilbert":  # its own words for the same
        config.hidden_dim, config.dim, config.n_layers, config.n_heads = 24, 16, 2, 4
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(input_ids=torch.randint(5, 40, (3, 10)), attention_mask=torch.ones(3, 10, dtype=torch.long))
    assert counter.get_total_flops() == flops(shape_of(model), 10, 3)
