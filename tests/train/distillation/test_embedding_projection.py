"""Teachers and students of embeddings in one space."""

import io

import numpy as np
import pytest
import torch

from compress.console import Console
from compress.data.splits.prepare_splits import load_prepared, prepare_splits
from compress.errors import ModelError, UsageError
from compress.families import FAMILIES
from compress.model_folder.model_info import read_info
from compress.models.embedding_model import embedding_size, projection_of, with_projection
from compress.models.load_save import load, load_model
from compress.models.student.build_student import build_student
from compress.prune.cut_and_recover import cut, prune_from_model
from compress.recipe.distill_schema import Distill
from compress.recipe.prune_schema import Prune
from compress.recipe.student_schema import Student
from compress.recipe.task_schema import Task
from compress.train.core.training_data import fast_tokenizer
from compress.train.distill import distill, distill_from_model
from compress.train.distillation.embedding_projection import (
    embeddings,
    match_embedding_width,
    match_student_embedding,
    principal_components,
    reduce_embedding_width,
)

HEAD = "ForSentenceEmbedding"
SETTINGS = {"epochs": 2, "batch_size": 8, "learning_rate": 3e-3, "precision": "fp32", "losses": {"soft_label": 1.0}}
WORDS = ("good", "great", "fine", "bad", "dull", "film", "plot", "very")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A prepared folder of pairs that share words or do not."""
    folder = tmp_path_factory.mktemp("alike")
    pairs = [(number, number * (number % 3) + number // 7) for number in range(60)]
    lines = [
        f"the {WORDS[a % 8]} {WORDS[a % 5]},so {WORDS[b % 8]} {WORDS[b % 5]},{float(a % 8 == b % 8)}" for a, b in pairs
    ]
    (folder / "rows.csv").write_text("\n".join(["one,other,label", *lines]) + "\n")
    files = dict.fromkeys(("train", "select", "test"), str(folder / "rows.csv"))
    task = {"name": "alike", "kind": "similarity", "text": ["one", "other"], "range": [0, 1], "max_length": 16}
    (folder / "data").mkdir()
    prepare_splits(Task.model_validate(task | {"data": files}), 0, folder / "data")
    return folder / "data"


@pytest.fixture
def given(data, tiny_model, tiny_tokenizer):
    """Rows, task and tokens."""
    roles = load_prepared(data)
    return roles.rows("train"), roles.info.task_info, fast_tokenizer(tiny_model("bert").config, tiny_tokenizer)


def test_components_are_those_of_the_singular_value_decomposition():
    vectors = np.random.default_rng(0).standard_normal((50, 6)) * np.arange(1, 7)
    result = principal_components(vectors, 4).double().numpy()
    expected = np.linalg.svd(vectors, full_matrices=False)[2][:4]
    np.testing.assert_allclose(np.abs((result * expected).sum(axis=1)), 1, atol=1e-6)
    np.testing.assert_allclose(result @ result.T, np.eye(4), atol=1e-6)
    assert (result[np.arange(4), np.abs(result).argmax(axis=1)] > 0).all()
    again = principal_components(vectors[::-1], 4).double().numpy()
    np.testing.assert_allclose(again, result, atol=1e-6)


def test_embeddings_are_of_every_text(given, tiny_model, monkeypatch):
    rows, task, tokens = given
    model = tiny_model("bert", head=HEAD)
    assert embeddings(model, rows, task, tokens).shape == (2 * len(rows), 32)
    monkeypatch.setattr("compress.train.distillation.embedding_projection.SAMPLE", 7)
    assert embeddings(model, rows, task, tokens).shape == (14, 32)


def test_a_narrowed_teacher_keeps_what_it_can_of_its_cosines(given, tiny_model):
    teacher = tiny_model("bert", head=HEAD)
    result = reduce_embedding_width(teacher, 8, *given)
    assert (embedding_size(result), embedding_size(teacher)) == (8, 32)
    assert torch.equal(projection_of(reduce_embedding_width(teacher, 8, *given)), projection_of(result))
    assert reduce_embedding_width(teacher, 32, *given) is teacher
    wide, narrow = embeddings(teacher, *given), embeddings(result, *given)
    by_hand = wide @ projection_of(result).numpy().T
    by_hand /= np.linalg.norm(by_hand, axis=1, keepdims=True)
    np.testing.assert_allclose(narrow, by_hand, atol=1e-5)
    first = with_projection(teacher, torch.eye(32)[:8])
    off = [np.abs(wide @ wide.T - other @ other.T).mean() for other in (narrow, embeddings(first, *given))]
    assert off[0] < off[1]


def test_a_teacher_with_a_projection_is_narrowed_behind_it(given, tiny_model):
    teacher = tiny_model("bert", head=HEAD, sentence_size=16)
    result = reduce_embedding_width(teacher, 4, *given)
    by_hand = embeddings(teacher, *given) @ principal_components(embeddings(teacher, *given), 4).numpy().T
    by_hand /= np.linalg.norm(by_hand, axis=1, keepdims=True)
    np.testing.assert_allclose(embeddings(result, *given), by_hand, atol=1e-5)


def test_invalid_embedding_width_is_refused(given, tiny_model, tiny_task):
    with pytest.raises(ModelError, match=r"embedding width 64 exceeds the teacher's \(32\)"):
        match_student_embedding(Student(layers=1, embedding=64), tiny_model("bert", head=HEAD), *given)
    with pytest.raises(UsageError, match=r"student\.embedding: 8 .*classification has no embeddings"):
        match_student_embedding(Student(layers=1, embedding=8), tiny_model("bert"), given[0], tiny_task, given[2])
    model = tiny_model("bert")
    assert match_student_embedding(Student(layers=1), model, given[0], tiny_task, given[2]) is model
    assert match_embedding_width(model, model, given[0], tiny_task, given[2]) is model


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_distils_into_fewer_dimensions(name, data, given, tiny_model, tiny_folder, tmp_path):
    teacher = tiny_model(name, head=HEAD)
    folder = tiny_folder(teacher, given[1])
    output, spec = Console(err=io.StringIO()), Student(layers=1, embedding=8)
    made = distill(folder, spec, data, Distill(**SETTINGS), 0, tmp_path, console=output)
    assert "the teacher's embeddings are reduced to 8 principal components" in output.err.getvalue()
    assert (made.info.shape.layers, made.info.task.kind) == (1, "similarity")
    losses = [record.losses["soft_label"] for record in made.result.history if record.update]
    assert losses[-1] < losses[0]
    assert embedding_size(load(tmp_path)) == 8
    assert (tmp_path / "2_Dense" / "model.safetensors").is_file()


@pytest.mark.gpu
def test_an_untrained_student_starts_with_its_teacher_s_components(data, given, tiny_model, tiny_folder, tmp_path):
    teacher = tiny_model("bert", head=HEAD)
    distill(tiny_folder(teacher, given[1]), Student(layers=1, embedding=8), data, False, 0, tmp_path)
    torch.testing.assert_close(projection_of(load(tmp_path)), projection_of(reduce_embedding_width(teacher, 8, *given)))


def test_a_narrow_student_reaches_its_teacher_s_width(data, given, tiny_model, tiny_folder, tmp_path):
    spec = Student(layers=1, hidden=16, heads=2)
    distill(tiny_folder(tiny_model("bert", head=HEAD), given[1]), spec, data, Distill(**SETTINGS), 0, tmp_path)
    assert projection_of(load(tmp_path)).shape == (32, 16)


def test_a_student_s_own_checkpoint_decides_where_it_is_narrower(given, tiny_model, tiny_folder):
    teacher, task = tiny_model("bert", head=HEAD), given[1]
    for size, expected in ((8, 8), (64, 32)):
        spec = Student(source=str(tiny_folder(tiny_model("bert", head=HEAD, sentence_size=size), task)))
        guide = match_student_embedding(spec, teacher, *given)
        assert embedding_size(guide) == expected
        assert embedding_size(build_student(guide, spec, task)) == expected


def test_pruning_keeps_the_projection_and_the_space(data, given, tiny_model, tiny_folder, tmp_path):
    teacher = tiny_folder(tiny_model("bert", head=HEAD), given[1])
    (tmp_path / "student").mkdir()
    student = tmp_path / "student"
    distill(teacher, Student(layers=2, embedding=8), data, Distill(**SETTINGS), 0, student)
    cut(student, teacher, data, Prune(heads=0.25, ffn=0.5, batches=2), 0, tmp_path / "cut")
    pruned = Student(source=str(tmp_path / "cut"))
    distill(teacher, pruned, data, Distill(**SETTINGS), 0, tmp_path / "pruned", step="recover", recovers=True)
    for name in ("pruned", "cut"):
        assert sum(read_info(tmp_path / name).shape.heads) == 6
        assert embedding_size(load(tmp_path / name)) == 8
    assert torch.equal(projection_of(load(tmp_path / "cut")), projection_of(load(student)))


@pytest.mark.gpu
def test_models_in_memory(given, tiny_model, tiny_tokenizer):
    rows, task, _ = given
    rows = list(rows)
    teacher, student = tiny_model("bert", head=HEAD), tiny_model("bert", head=HEAD, sentence_size=8)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    settings = Prune.model_validate({"heads": 0.25, "batches": 2, "recover": SETTINGS})
    made = distill_from_model(teacher, student, tiny_tokenizer, rows, rows[:9], task, Distill(**SETTINGS))
    pruned = prune_from_model(made, tiny_tokenizer, rows, rows[:9], task, settings, teacher=teacher)
    assert embedding_size(made) == embedding_size(pruned) == 8
    assert teacher.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_loading_for_the_task_leaves_the_space(given, tiny_model, tiny_folder):
    model = tiny_model("bert", head=HEAD, sentence_size=8)
    assert torch.equal(projection_of(load_model(tiny_folder(model, given[1]), given[1])), projection_of(model))
