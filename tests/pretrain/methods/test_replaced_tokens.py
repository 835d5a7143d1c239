import pytest
import torch
from transformers import AutoModel, ElectraConfig, ElectraForPreTraining

from compress.pretrain.methods.bert_pretraining import MaskedLMObjective
from compress.pretrain.methods.replaced_tokens import (
    ReplacedTokensObjective,
    attach_generator,
    detach_generator,
    detection_losses,
    draw_pieces,
    generator_config,
    generator_of,
    new_electra,
)
from compress.pretrain.pretrain_schema import MaskedLM, ReplacedTokens
from tests.pretrain.packed import MASK, SIZE, packed_batch, with_other_padding

CONFIG = ElectraConfig(
    vocab_size=SIZE,
    embedding_size=32,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=40,
)


@pytest.fixture
def model() -> ElectraForPreTraining:
    model = new_electra(CONFIG, seed=0)
    attach_generator(model, ReplacedTokens(), seed=1)
    return model


def objective(weight: float = 50.0) -> ReplacedTokensObjective:
    return ReplacedTokensObjective(ReplacedTokens(weight=weight), MaskedLMObjective(MaskedLM(share=0.4), MASK, seed=0))


def test_the_generator_is_a_narrower_model_of_equal_depth() -> None:
    config = generator_config(CONFIG, 0.25)
    assert (config.num_hidden_layers, config.num_attention_heads, config.hidden_size) == (2, 1, 8)
    assert (config.intermediate_size, config.embedding_size) == (16, 32)
    assert CONFIG.hidden_size == 32


def test_embeddings_are_shared_and_trained_once(model) -> None:
    embeddings = model.electra.embeddings
    assert generator_of(model).electra.embeddings is embeddings
    assert generator_of(model).generator_lm_head.weight is embeddings.word_embeddings.weight
    named = dict(model.named_parameters())
    assert len({id(parameter) for parameter in named.values()}) == len(named)


def test_generator_and_model_learn_from_their_own_loss(model) -> None:
    """No gradient flows through the pieces that are drawn."""
    losses = objective()(model, packed_batch())
    losses["replaced_tokens"].backward()
    own = [*generator_of(model).electra.encoder.parameters(), *generator_of(model).generator_predictions.parameters()]
    assert all(parameter.grad is None for parameter in own)
    assert all(parameter.grad is not None for parameter in model.electra.encoder.parameters())
    model.zero_grad()
    objective()(model, packed_batch())["generator"].backward()
    assert all(parameter.grad is not None for parameter in own)
    assert all(parameter.grad is None for parameter in model.electra.encoder.parameters())
    assert model.electra.embeddings.word_embeddings.weight.grad is not None


def test_losses_depend_neither_on_padding_nor_on_other_rows(model) -> None:
    model.train(False)
    batch, loss = packed_batch(), objective()
    whole = loss(model, batch)
    for name, value in loss(model, with_other_padding(batch)).items():
        torch.testing.assert_close(value, whole[name])
    parts = [loss(model, {key: array[rows] for key, array in batch.items()}) for rows in (slice(0, 1), slice(1, 4))]
    for name, value in whole.items():
        torch.testing.assert_close(value, (parts[0][name] + 3 * parts[1][name]) / 4)


def test_the_models_loss_is_weighted(model) -> None:
    model.train(False)
    once, fifty = objective(1.0)(model, packed_batch()), objective()(model, packed_batch())
    torch.testing.assert_close(fifty["replaced_tokens"], 50 * once["replaced_tokens"])
    torch.testing.assert_close(fifty["generator"], once["generator"])


def test_drawn_pieces_follow_the_softmax() -> None:
    probabilities = torch.tensor([0.1, 0.0, 0.6, 0.3])
    shares = (torch.arange(1000) + 0.5) / 1000
    drawn = draw_pieces(probabilities.log().expand(1000, 4), shares)
    assert torch.bincount(drawn, minlength=4).tolist() == [100, 0, 600, 300]
    assert draw_pieces(torch.zeros(1, 4), torch.tensor([1.0])).tolist() == [3]


def test_a_true_piece_that_was_drawn_counts_as_true() -> None:
    losses = detection_losses(torch.tensor([-9.0, 9.0]), torch.tensor([False, True]))
    assert losses.max() < 1e-3


def test_the_product_is_a_plain_electra(model, tmp_path) -> None:
    generator = detach_generator(model)
    model.save_pretrained(tmp_path / "model")
    generator.save_pretrained(tmp_path / "generator")
    loaded, report = ElectraForPreTraining.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    batch = {name: packed_batch()[name] for name in ("input_ids", "attention_mask")}
    torch.testing.assert_close(loaded(**batch).logits, model.eval()(**batch).logits)
    encoder = AutoModel.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(encoder(**batch).last_hidden_state, model.electra(**batch).last_hidden_state)
    vectors = AutoModel.from_pretrained(tmp_path / "generator").embeddings.word_embeddings.weight
    assert torch.equal(vectors, encoder.embeddings.word_embeddings.weight)


@pytest.mark.slow
def test_it_learns(model) -> None:
    """On texts in which each piece is followed by the next id, both losses fall."""
    start = torch.randint(5, 60, (16, 1), generator=torch.Generator().manual_seed(0))
    ids = start + torch.arange(12)
    ones = torch.ones_like(ids)
    index = torch.arange(16)
    batch = {"input_ids": ids, "attention_mask": ones, "maskable": ones, "word_start": ones, "index": index}
    loss, optimizer = objective(), torch.optim.AdamW(model.parameters(), lr=3e-3)
    sums = []
    torch.manual_seed(0)
    for step in range(150):
        loss.begin(0.0, step)
        losses = loss(model, batch)
        sums.append([float(value.detach()) for value in losses.values()])
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
    first, last = torch.tensor(sums[:10]).mean(0), torch.tensor(sums[-10:]).mean(0)
    assert last[0] < 0.8 * first[0]
    assert last[1] < 0.9 * first[1]
