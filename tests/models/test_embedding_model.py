"""Embedding models of every family, against the plain encoder asked one text at a time."""

import io

import pytest
import torch
from transformers import AutoModel

from compress.console import Console
from compress.errors import ModelError
from compress.families import FAMILIES
from compress.model_folder.model_info import FolderInfo, TaskInfo, read_info
from compress.models.embedding_model import (
    PROJECTION,
    AutoModelForSentenceEmbedding,
    embedding_size,
    projection_of,
    set_embedding_size,
    set_projection,
    with_projection,
)
from compress.models.encoder_parts import base_of, capture_parts, family_of, layers_of
from compress.models.heads import head_of
from compress.models.load_save import fit_head, has_task_head, load, load_model, save_model, saved_embedding_size
from compress.models.read_checkpoint import quiet
from compress.models.student.build_student import build_student
from compress.recipe.student_schema import Student
from tests.conftest import same_weights

HEAD = "ForSentenceEmbedding"
PRUNABLE = [name for name, family in FAMILIES.items() if family.prunable]


def task_of(pooling="mean", kind="similarity"):
    return TaskInfo(name="alike", kind=kind, text=("one", "other"), metric="spearman", max_length=32, pooling=pooling)


def one_by_one(model, inputs):
    """The embeddings by the book: each text alone and without padding, its pieces summed in a loop."""
    with quiet():
        plain = type(model).__mro__[2](model.config)
    plain.load_state_dict(model.state_dict(), strict=False)
    plain.eval()
    result = []
    for index, length in enumerate(inputs["attention_mask"].sum(dim=1)):
        states = plain(**{name: array[index : index + 1, :length] for name, array in inputs.items()}).last_hidden_state
        vector = states[0, 0] if model.config.pooling == "cls" else sum(states[0]) / length
        if model.projection is not None:
            vector = model.projection.weight @ vector
        result.append(vector / vector.square().sum().sqrt())
    return torch.stack(result)


@pytest.mark.parametrize("size", [None, 8])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("name", FAMILIES)
def test_embedding_is_pooled_projected_and_normalised(name, pooling, size, tiny_model, batch):
    model = tiny_model(name, head=HEAD, pooling=pooling, sentence_size=size)
    with torch.no_grad():
        result = model(**batch(model))
        assert list(result) == ["sentence_embedding"]
        assert result.sentence_embedding.shape == (2, size or 32)
        torch.testing.assert_close(result.sentence_embedding, one_by_one(model, batch(model)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", FAMILIES)
def test_weight_names_are_those_of_the_plain_encoder(name, tiny_model, tiny_folder):
    model = tiny_model(name, head=HEAD, sentence_size=8)
    plain = tiny_model(name, head="Model")
    assert model.state_dict().keys() - plain.state_dict().keys() == {f"{PROJECTION}weight"}
    assert head_of(model).name == "sentence-embedding"
    assert base_of(model) is model
    assert len(layers_of(model)) == 2
    folder = tiny_folder(model, task_of())
    assert same_weights(load(folder), model)
    assert same_weights(AutoModelForSentenceEmbedding.from_pretrained(folder), model)
    with quiet():
        again = AutoModel.from_pretrained(folder)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in again.state_dict().items())


@pytest.mark.parametrize("name", FAMILIES)
def test_hooks_capture_hidden_states_of_embedding_models(name, tiny_model, batch):
    model = tiny_model(name, head=HEAD)
    parts = {"hidden", "query"} if family_of(model).query else {"hidden"}
    with capture_parts(model, {1: parts}) as seen:
        model(**batch(model))
    assert seen[1]["hidden"].shape == (2, 6, 32)
    assert seen[1].keys() == parts


@pytest.mark.parametrize("name", PRUNABLE)
def test_nonuniform_embedding_model_is_restored_with_its_projection(name, tiny_model, tiny_folder, cut, batch):
    model = cut(tiny_model(name, head=HEAD, sentence_size=8, pooling="cls"))
    folder = tiny_folder(model, task_of())
    again = load(folder)
    assert type(again).__name__.startswith("Compress")
    assert read_info(folder).shape.heads == (3, 4)
    assert again.config.pooling == "cls"
    with torch.no_grad():
        assert torch.equal(again(**batch(model)).sentence_embedding, model(**batch(model)).sentence_embedding)
    assert saved_embedding_size(folder) == 8


@pytest.mark.parametrize("name", FAMILIES)
def test_plain_encoder_gets_the_tasks_pooling(name, tiny_model, tiny_tokenizer, tmp_path):
    plain = tiny_model(name, head="Model")
    with quiet():
        plain.save_pretrained(tmp_path)
    task = task_of("cls")
    assert not has_task_head(tmp_path, task)
    assert saved_embedding_size(tmp_path) is None
    model = load_model(tmp_path, task)
    assert (model.config.pooling, model.config.sentence_size, model.config.problem_type) == ("cls", None, None)
    assert same_weights(model, plain)
    fit_head(model, task)


def test_embedding_model_keeps_its_own_pooling(tiny_model, tiny_folder):
    model = tiny_model("bert", head=HEAD, pooling="cls", sentence_size=8)
    folder, output = tiny_folder(model, task_of()), io.StringIO()
    load_model(folder, task_of("mean"), console=Console(err=output))
    assert "keeps its own pooling, cls" in output.getvalue()
    for kind in ("similarity", "retrieval"):
        assert has_task_head(folder, task_of("mean", kind))
        again = load_model(folder, task_of("mean", kind))
        assert (again.config.pooling, again.config.sentence_size) == ("cls", 8)
        assert same_weights(again, model)


def test_embedding_model_is_an_encoder_for_other_tasks(tiny_model, tiny_folder, tiny_task, tiny_tokenizer, tmp_path):
    model = tiny_model("bert", head=HEAD, sentence_size=8)
    folder = tiny_folder(model, task_of())
    assert not has_task_head(folder, tiny_task)
    classifier = load_model(folder, tiny_task)
    assert torch.equal(classifier.bert.pooler.dense.weight, model.pooler.dense.weight)
    save_model(classifier, tiny_tokenizer, tmp_path, FolderInfo(step="finetune", made_by="tests", task=tiny_task))
    assert not hasattr(load(tmp_path).config, "sentence_size")
    assert not (tmp_path / "modules.json").exists()
    assert load_model(tmp_path, task_of()).projection is None


def test_missing_projection_is_an_error(tiny_model, tiny_folder):
    folder = tiny_folder(tiny_model("bert", head=HEAD, sentence_size=8), task_of())
    with quiet():
        tiny_model("bert", head="Model").save_pretrained(folder / "plain")
    (folder / "plain" / "model.safetensors").replace(folder / "model.safetensors")
    assert load(folder).projection is not None  # sentence-transformers' files hold it too
    (folder / "modules.json").unlink()
    for task in (None, task_of()):
        with pytest.raises(ModelError, match=r"lacks weights of its head: projection\.weight"):
            load_model(folder, task)


def test_projection_can_be_set_and_removed(tiny_model):
    model = tiny_model("bert", head=HEAD)
    assert (embedding_size(model), projection_of(model)) == (32, None)
    weight = torch.eye(32)[:5]
    other = with_projection(model, weight)
    assert (embedding_size(other), embedding_size(model)) == (5, 32)
    assert torch.equal(projection_of(other), weight)
    set_embedding_size(other, 5, seed=1)
    assert torch.equal(projection_of(other), weight)
    set_embedding_size(other, 7, seed=1)
    first = projection_of(other)
    set_embedding_size(other, 5, seed=1)
    set_embedding_size(other, 7, seed=1)
    assert torch.equal(projection_of(other), first)
    set_projection(other, None)
    assert same_weights(other, model)


@pytest.mark.parametrize("name", FAMILIES)
def test_student_of_an_embedding_model_has_its_embedding_size(name, tiny_model):
    teacher = tiny_model(name, head=HEAD)
    student = build_student(teacher, Student(layers=1))
    assert (type(student), student.projection) == (type(teacher), None)
    projected = with_projection(teacher, torch.eye(32)[:8])
    assert torch.equal(projection_of(build_student(projected, Student(layers=1))), torch.eye(32)[:8])


def test_narrow_student_is_projected_to_its_teachers_space(tiny_model, tiny_folder):
    teacher = tiny_model("bert", head=HEAD)
    student = build_student(teacher, Student(layers=1, hidden=16, heads=2), seed=3)
    assert projection_of(student).shape == (32, 16)
    again = build_student(teacher, Student(layers=1, hidden=16, heads=2), seed=3)
    assert same_weights(student, again)
    assert build_student(teacher, Student(layers=1, hidden=16, heads=2, embedding=16)).projection is None
    own = build_student(teacher, Student(source=str(tiny_folder(student, task_of()))), task_of())
    assert same_weights(own, student)
