import pytest
import torch
from transformers import AutoModelForSequenceClassification

from compress.errors import ModelError
from compress.families import family_named
from compress.models.encoder_parts import shape_of
from compress.models.heads import HEADS
from compress.models.light_models import LIGHT_CONFIGS

CLS, SEP = 1, 2


def make_light(kind="static", head="sequence-classification", **settings):
    torch.manual_seed(0)
    shape = {"vocab_size": 300, "hidden_size": 16, "buckets": 60, "head_width": 12, "num_labels": 3}
    depth = 2 if kind == "conv" else 0
    config = LIGHT_CONFIGS[kind](
        **shape | {"num_hidden_layers": depth, "special_token_ids": [0, CLS, SEP], "sep_token_id": SEP} | settings
    )
    if head == "sentence-embedding":
        config.update({"pooling": "mean", "sentence_size": 8})
    model = HEADS[head].model_class(type(config))(config).eval()
    embeddings = model.base_model.embeddings
    torch.nn.init.normal_(embeddings.piece_weights.weight)
    if embeddings.longest > 1:
        torch.nn.init.normal_(embeddings.ngram_embeddings.weight)
        torch.nn.init.normal_(embeddings.ngram_weights.weight)
    return model


def outputs_of(model, *rows):
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    with torch.no_grad():
        outputs = model(ids, (ids > 0).long())
    return outputs["sentence_embedding" if "sentence_embedding" in outputs else "logits"]


SETTINGS = [{}, {"pairs": True}, {"factors": 4}, {"ngrams": 1}, {"ngrams": 5}]
TEXT, LONG = [CLS, 7, 8, 9, SEP, 11, SEP], [CLS, 7, 12, 13, 14, SEP, 15, 16, 17, SEP]


@pytest.mark.parametrize("kind", LIGHT_CONFIGS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_padding_and_other_rows_change_nothing(kind, settings):
    model = make_light(kind, **settings)
    torch.testing.assert_close(outputs_of(model, TEXT, LONG)[:1], outputs_of(model, TEXT))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_static_reads_order_in_ngrams_alone(settings):
    model = make_light(**settings)
    one, other = outputs_of(model, [CLS, 7, 8, 9, SEP], [CLS, 9, 7, 8, SEP])
    assert torch.allclose(one, other) == (settings.get("ngrams") == 1)


def test_conv_reads_order():
    one, other = outputs_of(make_light("conv", ngrams=1), [CLS, 7, 8, 9, SEP], [CLS, 9, 7, 8, SEP])
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("kind", LIGHT_CONFIGS)
@pytest.mark.parametrize("pairs", [False, True])
def test_a_text_without_pieces_has_an_answer(kind, pairs):
    logits = outputs_of(make_light(kind, pairs=pairs), [CLS, SEP, SEP], [CLS, 7, SEP, SEP], [CLS, SEP, 7, SEP])
    assert torch.isfinite(logits).all()


def test_a_pair_is_told_from_its_texts_in_another_order_and_from_one_text():
    model = make_light(pairs=True)
    one, other, joined = outputs_of(model, [CLS, 7, 8, SEP, 9, SEP], [CLS, 9, SEP, 7, 8, SEP], [CLS, 7, 8, 9, SEP, SEP])
    assert not torch.allclose(one, other)
    assert not torch.allclose(one, joined)


def test_a_pair_with_equal_texts_has_no_difference():
    model = make_light(pairs=True)
    content = torch.tensor([[0.0, 1, 1, 0, 1, 1, 0]])
    ids = torch.tensor([[CLS, 7, 8, SEP, 7, 8, SEP]])
    halves = [content * torch.tensor([1, 1, 1, 0, 0, 0, 0]), content * torch.tensor([0, 0, 0, 0, 1, 1, 1])]
    left, right = model.base_model.texts(ids, content, halves)
    torch.testing.assert_close(left, right)


@pytest.mark.parametrize("kind", LIGHT_CONFIGS)
def test_a_saved_model_loads_through_the_auto_class(kind, tmp_path):
    model = make_light(kind)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert type(loaded) is type(model)
    torch.testing.assert_close(outputs_of(loaded, TEXT), outputs_of(model, TEXT))


def test_folded_weights_compute_the_same_and_are_unfolded_afterwards():
    model = make_light()
    before, weight = outputs_of(model, TEXT), model.base_model.embeddings.word_embeddings.weight
    with model.base_model.embeddings.folded_weights():
        torch.testing.assert_close(outputs_of(model, TEXT), before)
        assert model.base_model.embeddings.word_embeddings.weight is not weight
    assert model.base_model.embeddings.word_embeddings.weight is weight


def test_embeddings_are_unit_vectors():
    embeddings = outputs_of(make_light(head="sentence-embedding"), TEXT, LONG)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(2))


def test_conv_decides_for_each_token():
    assert outputs_of(make_light("conv", "token-classification"), LONG).shape == (1, len(LONG), 3)


def test_static_has_no_class_for_tags():
    with pytest.raises(KeyError):
        make_light(head="token-classification")


def test_the_shape_counts_all_parameters():
    model = make_light("conv")
    shape = shape_of(model)
    assert (shape.family, shape.layers, shape.hidden, shape.vocabulary) == ("conv", 0, 16, 300)
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert shape.text == "16 wide, 300 pieces"


def test_no_teacher_is_of_such_a_family():
    assert not family_named("compress-static").has_attention
    with pytest.raises(ModelError, match="'static' is not supported"):
        family_named("static")
