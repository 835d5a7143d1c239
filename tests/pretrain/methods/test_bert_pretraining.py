"""The losses are transformers' own, computed at the masked pieces alone, and each row counts alike."""

import pytest

from compress.pretrain.pretrain_schema import MaskedLM

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from compress.models.encoder_parts import family_of  # noqa: E402
from compress.pretrain.methods.bert_pretraining import MaskedLMObjective, predict_at  # noqa: E402
from compress.pretrain.text.sentence_packing import NEXT_SENTENCE  # noqa: E402
from compress.train.fast_paths.bf16_weights import Bf16Weights  # noqa: E402
from tests.conftest import make_tiny  # noqa: E402

FAMILIES = ("bert", "roberta", "electra", "distilbert", "albert", "modernbert")


def batch(rows=6, width=20, seed=0):
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 64, (rows, width), generator=random)
    mask = (torch.arange(width) < torch.randint(8, width + 1, (rows, 1), generator=random)).long()
    return {
        "input_ids": ids * mask,
        "attention_mask": mask,
        "token_type_ids": (torch.arange(width) > 9).long().expand(rows, width),
        "maskable": mask,
        "word_start": torch.ones_like(ids),
        "index": torch.arange(rows) + 100 * seed,
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_words_are_predicted_as_by_the_whole_model(family):
    model, given = make_tiny(family, head="ForMaskedLM"), batch()
    chosen = torch.rand(given["input_ids"].shape, generator=torch.Generator().manual_seed(1)) < 0.3
    chosen &= given["attention_mask"].bool()
    inputs = {name: given[name] for name in family_of(model).inputs}
    with torch.no_grad():
        torch.testing.assert_close(predict_at(model, given, chosen).words, model(**inputs).logits[chosen])
        again = model(**inputs).logits
    assert again.shape[:2] == chosen.shape  # nothing of the model remains changed


def test_each_row_counts_alike_whatever_the_batch():
    model, given = make_tiny("bert", head="ForPreTraining"), batch()
    given[NEXT_SENTENCE] = torch.tensor([0, 1, 1, 0, 1, 0])
    objective = MaskedLMObjective(MaskedLM(share=0.4), 4, seed=3)
    objective.begin(0.0, 7)
    whole = objective(model, given)
    parts = [objective(model, {name: array[half] for name, array in given.items()}) for half in (slice(4), slice(4, 6))]
    for name, loss in whole.items():
        torch.testing.assert_close(loss, (4 * parts[0][name] + 2 * parts[1][name]) / 6)
    masked, targets = objective.masked(model, given)
    with torch.no_grad():
        logits = model(masked, given["attention_mask"], given["token_type_ids"]).prediction_logits
    rows = [functional.cross_entropy(row, target) for row, target in zip(logits, targets, strict=True)]
    torch.testing.assert_close(whole["masked_lm"], torch.stack(rows).mean())


def test_masks_follow_the_step():
    model, given, objective = make_tiny("bert", head="ForMaskedLM"), batch(), MaskedLMObjective(MaskedLM(), 4, 0, 10)
    drawn = []
    for update in (0, 1):
        objective.begin(0.0, update)
        drawn.append(objective.masked(model, given)[1])
    later = MaskedLMObjective(MaskedLM(), 4, 0, 11)
    assert not torch.equal(*drawn)
    assert torch.equal(later.masked(model, given)[1], drawn[1])


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra"])
def test_gradients_of_shared_vectors_are_whole_in_bf16(family):
    model, given, objective = make_tiny(family, head="ForMaskedLM"), batch(), MaskedLMObjective(MaskedLM(), 4, 0)
    gradients = []
    for precision in ("fp32", "bf16"):
        model.zero_grad()
        if precision == "bf16":
            copy = Bf16Weights(model)
            copy.refresh()
            with copy.running():
                sum(objective(model, given).values()).backward()
        else:
            sum(objective(model, given).values()).backward()
        gradients.append(model.get_input_embeddings().weight.grad.clone())
    assert gradients[1].dtype == torch.float32
    similarity = functional.cosine_similarity(gradients[0].flatten(), gradients[1].flatten(), dim=0)
    assert similarity > 0.98
