"""One teacher, several that answer as one, and those that cannot."""

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from compress.data.encode import encode_rows
from compress.errors import ModelError
from compress.losses import EMBEDDINGS
from compress.model_folder.model_info import TaskInfo
from compress.models.encoder_parts import layers_of
from compress.models.load_save import load
from compress.models.student.build_student import build_student
from compress.recipe.distill_schema import Distill
from compress.recipe.student_schema import Student
from compress.train.core.training_data import fast_tokenizer
from compress.train.distill import distill, distill_from_model
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.distillation.teachers import Teacher, further_teachers, ids_in_teacher
from tests.conftest import word_tokenizer

SETTINGS = {"epochs": 1, "batch_size": 8, "learning_rate": 3e-3, "precision": "fp32"}
SOFT = {"losses": {"soft_label": 1.0}, "hard_label": 0.0}


@pytest.fixture
def other(tiny_model):
    """Makes a teacher with other weights."""

    def make(seed, **changes):
        model = tiny_model("bert", **changes)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
        return model

    return make


@pytest.fixture
def six(material):
    return {name: torch.from_numpy(array) for name, array in material.train.batch(list(range(6))).items()}


def logits(model, batch):
    return Teacher([(model, 1.0)])(batch, {})[0]["logits"]


def test_teacher_returns_outputs_and_requested_layers(tiny_model, six):
    model = tiny_model("bert").train()
    answers, seen = Teacher([(model, 1.0)])(six, {EMBEDDINGS: {"hidden"}, 1: {"query", "hidden"}})
    assert not model.training
    assert not answers["logits"].requires_grad
    assert {layer: sorted(parts) for layer, parts in seen.items()} == {EMBEDDINGS: ["hidden"], 1: ["hidden", "query"]}
    assert not seen[1]["query"].requires_grad


def test_ensemble_averages_logits(other, six):
    first, second, third = (other(seed) for seed in (1, 2, 3))
    both = Teacher([(first, 1.0), (second, 3.0), (third, 4.0)])
    mean = (logits(first, six) + 3 * logits(second, six) + 4 * logits(third, six)) / 8
    answers, seen = both(six, {0: {"hidden"}})
    assert torch.allclose(answers["logits"], mean, atol=1e-6)
    assert torch.equal(seen[0]["hidden"], Teacher([(first, 1.0)])(six, {0: {"hidden"}})[1][0]["hidden"])
    assert both.model is first


def test_embeddings_are_averaged_on_the_sphere(tiny_model, tiny_tokenizer):
    task = TaskInfo(name="t", kind="similarity", text=("a", "b"), metric="m", max_length=32)
    models = [tiny_model("bert", head="ForSentenceEmbedding", pooling=pooling) for pooling in ("mean", "cls")]
    rows = [{"text": "a good film", "text_pair": "so dull", "label": 0.3}]
    encoded = encode_rows(rows, task, fast_tokenizer(models[0].config, tiny_tokenizer))
    batch = {name: torch.from_numpy(array) for name, array in encoded.batch([0, 1]).items()}
    one, two = (Teacher([(model, 1.0)])(batch, {})[0]["sentence_embedding"] for model in models)
    result = Teacher([(models[0], 1.0), (models[1], 1.0)])(batch, {})[0]["sentence_embedding"]
    assert torch.allclose(result, (one + two) / (one + two).norm(dim=-1, keepdim=True), atol=1e-6)
    assert torch.allclose(result.norm(dim=-1), torch.ones(2))


def test_ensemble_identity_covers_teachers_and_weights(other):
    first, second, third = (other(seed) for seed in (1, 2, 3))
    identities = {
        Teacher([(first, 1.0), (model, weight)]).identity() for model in (second, third) for weight in (1.0, 2.0)
    }
    assert len(identities) == 4
    assert Teacher([(first, 2.0)]).identity() not in identities


def test_a_student_learns_from_several(other, six, tiny_task):
    teachers = [other(1), other(2)]
    student = other(5)
    both = DistillObjective(student, Teacher([(each, 1.0) for each in teachers]), Distill(**SOFT), tiny_task)
    alone = DistillObjective(student, teachers[0], Distill(**SOFT), tiny_task)
    assert both(student, six)["soft_label"] != alone(student, six)["soft_label"]


def test_models_in_memory_may_be_several(other, tiny_tokenizer, tiny_task, rows):
    teachers = [(other(1), 1.0), (other(2), 2.0)]
    student = build_student(teachers[0][0], Student(layers=1))
    trained = distill_from_model(teachers, student, tiny_tokenizer, rows(20), rows(8), tiny_task, Distill(**SETTINGS))
    assert trained is student
    assert len(layers_of(trained)) == 1


def test_folders_may_be_several(other, tiny_folder, prepared, tmp_path):
    second = other(2)
    folders = [tiny_folder(other(1)), tiny_folder(second)]
    changed = [{"source": str(folders[1]), "weight": 2.0}]
    students = []
    for index, further in enumerate(([], changed)):
        work = tmp_path / str(index)
        distill(folders[0], Student(layers=1), prepared, Distill(**SETTINGS, **SOFT, teachers=further), 0, work)
        students.append(load(work))
    assert not torch.equal(students[0].classifier.weight, students[1].classifier.weight)


def test_labels_are_matched_by_name(other, tiny_model, tiny_folder, tiny_task, tiny_tokenizer, six):
    turned = tiny_model("bert", labels=("GOOD", "bad"))
    folder = tiny_folder(turned, tiny_task.model_copy(update={"labels": ("GOOD", "bad")}))
    settings = Distill(teachers=[{"source": str(folder), "weight": 0.5}])
    ((model, weight),) = further_teachers(settings, other(1), tiny_task, tiny_tokenizer)
    assert weight == 0.5
    assert torch.allclose(logits(model, six), logits(turned, six).flip(-1), atol=1e-6)


def refused(folder, first, task, tokenizer):
    settings = Distill(teachers=[str(folder)])
    with pytest.raises(ModelError) as caught:
        further_teachers(settings, first, task, tokenizer)
    assert f"distill.teachers: {folder}" in str(caught.value)
    return str(caught.value)


def test_other_head_is_refused(other, tiny_model, tiny_folder, tiny_task, tiny_tokenizer):
    more = tiny_folder(
        tiny_model("bert", labels=("bad", "fine", "good")),
        tiny_task.model_copy(update={"labels": ("bad", "fine", "good")}),
    )
    message = refused(more, other(1), tiny_task, tiny_tokenizer)
    assert "its labels are bad, fine, good; expected bad, good, in any order" in message
    tags = tiny_task.model_copy(update={"kind": "token_classification"})
    head = tiny_folder(tiny_model("bert", head="ForTokenClassification"), tags)
    message = refused(head, other(1), tiny_task, tiny_tokenizer)
    assert "its head is token-classification, expected sequence-classification" in message


@pytest.mark.slow
def test_another_vocabulary_is_refused(other, tiny_folder, tiny_task, word_folder):
    from transformers import PreTrainedTokenizerFast

    words = PreTrainedTokenizerFast(tokenizer_file=str(word_folder / "tokenizer.json"))
    message = refused(tiny_folder("bert"), other(1), tiny_task, words)
    assert "has another vocabulary (23 tokens) than the teacher (9 tokens)" in message
    assert "the id of 'b' is missing, in the teacher's 5." in message  # 'a' is 4 in both


def test_too_few_positions_are_refused(other, tiny_model, tiny_folder, tiny_task, tiny_tokenizer):
    folder = tiny_folder(tiny_model("bert", max_position_embeddings=16))
    settings = Distill(teachers=[str(folder)])
    with pytest.raises(ModelError, match=f"texts may be 32 tokens long, but the model {folder} has 16 positions"):
        further_teachers(settings, other(1), tiny_task, tiny_tokenizer)


def test_embeddings_of_another_width_are_refused(tiny_model, tiny_folder, tiny_tokenizer):
    task = TaskInfo(name="t", kind="similarity", text=("a", "b"), metric="m", max_length=32)
    first = tiny_model("bert", head="ForSentenceEmbedding", pooling="mean")
    folder = tiny_folder(tiny_model("bert", head="ForSentenceEmbedding", pooling="mean", hidden_size=16), task)
    message = refused(folder, first, task, tiny_tokenizer)
    assert "has embeddings of width 16, the first teacher 32" in message


def test_models_in_memory_with_other_pieces_are_refused(tiny_model, tiny_tokenizer, tiny_task, rows):
    def run(teachers, student):
        distill_from_model(teachers, student, tiny_tokenizer, rows(8), [], tiny_task, Distill(**SETTINGS))

    plain, few, many = (tiny_model("bert", vocab_size=size) for size in (64, 9, 500))
    with pytest.raises(ModelError, match="the student has 9 token embeddings, but the tokenizer has 23 tokens"):
        run(plain, few)
    with pytest.raises(ModelError, match="the student has 500 token embeddings and the teacher 64"):
        run(plain, many)
    with pytest.raises(ModelError, match="teacher 2 has 500 token embeddings"):
        run([(plain, 1.0), (many, 1.0)], plain)


def test_teachers_read_the_ids_of_their_own_vocabulary(other, six):
    teacher = Teacher([(other(1), 1.0), (other(2), 1.0)])
    renumbered = {**six, "teacher_ids": six["input_ids"], "input_ids": six["input_ids"] * 0}
    answers, seen = teacher(renumbered, {0: {"hidden"}})
    expected, layers = teacher(six, {0: {"hidden"}})
    assert torch.equal(answers["logits"], expected["logits"])
    assert torch.equal(seen[0]["hidden"], layers[0]["hidden"])


def test_a_vocabulary_is_the_teachers_or_a_part_of_it(tiny_tokenizer):
    def having(*words):
        return PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]))

    names = tiny_tokenizer.get_vocab()
    table = ids_in_teacher("it", having("film", "a"), tiny_tokenizer, "h")
    assert table.tolist() == [names[word] for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "film", "a")]
    assert ids_in_teacher("it", tiny_tokenizer, tiny_tokenizer, "h") is None
    swapped = sorted(names, key=lambda word: (names[word] > 3, -names[word] if names[word] > 3 else names[word]))[4:]
    for words in (["film", "unknown"], swapped):
        with pytest.raises(ModelError, match="it has another vocabulary"):
            ids_in_teacher("it", having(*words), tiny_tokenizer, "h")
