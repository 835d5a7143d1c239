import pytest
import torch

from compress.models.encoder_parts import family_of, head_size, layers_of, part
from compress.models.nonuniform_models import set_head_count


@pytest.fixture
def cut():
    """Cuts the first layer of a model to three heads and the last to 48 neurons, as pruning does."""

    def work(model):
        family, size = family_of(model), head_size(model)
        first, last = layers_of(model)[0], layers_of(model)[-1]
        for path in (family.query, family.key, family.value):
            first.set_submodule(path, keep(part(first, path), rows=3 * size))
        first.set_submodule(family.attention_output, keep(part(first, family.attention_output), columns=3 * size))
        set_head_count(first, family, 3, size)
        last.set_submodule(family.ffn_in, keep(part(last, family.ffn_in), rows=48))
        last.set_submodule(family.ffn_out, keep(part(last, family.ffn_out), columns=48))
        return model

    return work


def keep(linear, rows=None, columns=None):
    made = torch.nn.Linear(columns or linear.in_features, rows or linear.out_features)
    with torch.no_grad():
        made.weight.copy_(linear.weight[:rows, :columns])
        made.bias.copy_(linear.bias[:rows])
    return made


@pytest.fixture
def batch():
    """Two rows of pieces, one of them padded."""
    ids = torch.tensor([[2, 5, 9, 14, 8, 3], [2, 10, 8, 3, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    return lambda model: {name: arrays[name] for name in family_of(model).inputs}
