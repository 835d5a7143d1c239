import numpy as np
import pytest
import torch
from torch import nn

from compress.recipe.training_schema import Training
from compress.train.core.optimizer import frozen, make_optimizer
from compress.train.fast_paths.sparse_embeddings import sparse_embeddings

PIECES = np.array([0, 2, 3, 5, 6, 7])
BATCHES = [torch.tensor([[2, 5, 6, 3]]), torch.tensor([[2, 7, 3, 0], [2, 5, 5, 3]])]


def steps(model, words, decay=0.0):
    """Three updates; the gradient's norm of each."""
    optimizer = make_optimizer(model, [], Training(learning_rate=1e-2, weight_decay=decay), words)
    learning = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norms = []
    for _ in range(3):
        optimizer.zero_grad()
        for ids in BATCHES:
            model(input_ids=ids, attention_mask=(ids > 0).long()).logits.square().sum().backward()
            if words:
                words.collect(words.table.weight)
        norms.append(float(nn.utils.get_total_norm([each.grad for each in learning if each.grad is not None])))
        optimizer.step()
        if words:
            words.spread()
    return norms


def test_sparse_and_dense_embeddings_train_equally(tiny_model):
    dense, sparse = tiny_model("bert"), tiny_model("bert")
    words = sparse_embeddings(sparse, PIECES)
    with words.sparse():
        norms = steps(sparse, words)
    assert norms == pytest.approx(steps(dense, None), rel=1e-5)
    for (name, ours), theirs in zip(sparse.named_parameters(), dense.parameters(), strict=True):
        # A key bias shifts all scores of a query equally, so its exact gradient is zero. Adam scales the rounding noise
        # that is computed instead to full steps, and the noise differs between CPUs and between sparse and dense sums.
        if not name.endswith("key.bias"):
            assert torch.allclose(ours, theirs, atol=1e-4), name
    assert not words.table.sparse
    assert len(words.trained) == len(PIECES)


def test_gradients_of_batches_do_not_pile_up(tiny_model):
    model = tiny_model("bert")
    words = sparse_embeddings(model, PIECES)
    with words.sparse():
        for _ in range(3):
            words.table(BATCHES[0]).sum().backward()
            words.collect(words.table.weight)
            assert words.table.weight.grad is None
    assert words.trained.grad[:, 0].tolist() == [0.0, 3.0, 3.0, 3.0, 3.0, 0.0]


def test_rows_that_never_occur_are_not_updated(tiny_model):
    model = tiny_model("bert")
    before = model.get_input_embeddings().weight.clone()
    words = sparse_embeddings(model, PIECES)
    with words.sparse():
        steps(model, words, decay=0.5)
    after = model.get_input_embeddings().weight
    others = [piece for piece in range(len(before)) if piece not in PIECES]
    assert torch.equal(after[others], before[others])
    assert not torch.equal(after[5], before[5])


def test_reload_reads_the_table(tiny_model):
    model = tiny_model("bert")
    words = sparse_embeddings(model, PIECES)
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(0.5)
    words.reload()
    assert (words.trained == 0.5).all()


def test_frozen_or_shared_tables_are_trained_densely(tiny_model):
    model = tiny_model("bert")
    with frozen(model, "embeddings"):
        assert sparse_embeddings(model, PIECES) is None
    model.other = nn.Linear(1, 1, bias=False)
    model.other.weight = model.get_input_embeddings().weight
    assert sparse_embeddings(model, PIECES) is None
