import pytest
import torch

from compress.model_folder.model_info import read_info
from compress.models import load, load_tokenizer
from compress.recipe.distill_schema import LightDistill
from compress.recipe.student_schema import LightStudent
from compress.train.distillation.light_start import in_buckets, principal_directions
from compress.train.light_student import distill_light

SETTINGS = LightDistill(epochs=3.0, batch_size=8, learning_rate=1e-2)


def small(kind="static", **settings):
    ngrams = settings.pop("ngrams", 3 if kind == "static" else 1)
    hashed = {"ngrams": ngrams, "buckets": 40} if ngrams > 1 else {}
    return LightStudent(kind=kind, **{"hidden": 8, "head_width": 8} | hashed | settings)


@pytest.fixture(scope="module")
def teacher(tiny_folder, tiny_model):
    return tiny_folder(tiny_model("bert", initializer_range=0.1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "student",
    [
        small(),
        small("conv", convolutions=2),
        small(vocabulary=None),
        small(factors=4, ngrams=2),
        small(vocabulary={"keep": 12}, ngrams=3, start=["pieces", "ngrams"]),
        small(ngrams=1),
        small(start=[]),
        small(start=["pieces"]),
        small(hidden=40),
    ],
    ids=str,
)
def test_it_learns_from_its_teacher(student, teacher, prepared, tmp_path):
    trained = distill_light(teacher, student, prepared, SETTINGS, 0, tmp_path)
    model, info = load(tmp_path), read_info(tmp_path)
    assert trained.result.score is not None
    assert info.shape.family == student.kind
    assert info.inputs == ("input_ids", "attention_mask")
    assert info.task.labels == ("bad", "good")
    assert (info.vocabulary is not None) == (student.vocabulary is not None)
    assert model.config.vocab_size == len(load_tokenizer(tmp_path)) == info.shape.vocabulary
    assert model.base_model.embeddings.word_embeddings.embedding_dim == (student.factors or student.hidden)


@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert"])
def test_its_teacher_may_be_of_any_family(family, tiny_folder, prepared, tmp_path):
    student = small(start=["pieces", "ngrams", "components", "frequencies"])
    distill_light(tiny_folder(family), student, prepared, SETTINGS.model_copy(update={"max_steps": 2}), 0, tmp_path)
    assert read_info(tmp_path).shape.family == "static"


def test_unlabelled_texts_take_part(teacher, prepared, tmp_path):
    texts = [{"text": "the plot was so dull", "text_pair": None}] * 8
    distill_light(teacher, small(), prepared, SETTINGS, 0, tmp_path, unlabelled_rows=texts)
    assert read_info(tmp_path).training.updates > 3 * 50 / 8


def test_directions_are_those_of_the_largest_variance():
    spread = torch.tensor([[0.0, 3.0, 0.1], [0.0, -3.0, 0.1], [1.0, 0.0, 0.0]])
    directions = principal_directions(spread, torch.ones(3))
    torch.testing.assert_close(directions[:, 0].abs(), torch.tensor([0.0, 1.0, 0.0]), atol=0.1, rtol=0)


def test_an_ngram_gets_back_the_vector_that_was_put_into_its_buckets(teacher):
    from tests.models.test_light_models import make_light

    model = make_light(buckets=5000, ngrams=3)
    embeddings, vectors = model.base_model.embeddings, torch.randn(2, 16)
    torch.nn.init.constant_(embeddings.ngram_weights.weight, 0.5)
    embeddings.ngram_embeddings.weight.data = in_buckets(model.config, [[7, 8], [7, 8, 9]], vectors, [3, 2])
    ids, content = torch.tensor([[7, 8, 9]]), torch.ones(1, 3)
    pooled, weights = embeddings.ngrams(ids, content)
    found = (pooled * weights[..., None])[0]
    torch.testing.assert_close(found[1, :2].sum(dim=0), vectors[0])
    torch.testing.assert_close(found[2, 2:].sum(dim=0), vectors[1])
