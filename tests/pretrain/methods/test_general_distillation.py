import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM

from compress.errors import ModelError
from compress.pretrain.methods.general_distillation import load_teacher, load_word_teacher, new_student, with_word_head
from compress.pretrain.pretrain_schema import EncoderShape


def test_a_student_has_evenly_spread_layers_of_its_teacher(folders) -> None:
    teacher = load_teacher(folders("bert", 0))
    student = new_student(teacher, EncoderShape(layers=1), seed=0)
    assert len(student.encoder.layer) == 1
    ours, theirs = student.encoder.layer[0].state_dict(), teacher.encoder.layer[1].state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_student_of_equal_width_has_its_teachers_word_head(folders) -> None:
    folder = folders("bert", 0)
    teacher = load_word_teacher(folder, "masked")
    student = with_word_head(new_student(load_teacher(folder), EncoderShape(layers=1), 0), teacher, seed=0)
    ours, theirs = student.cls.state_dict(), teacher.cls.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert student.get_output_embeddings().weight is student.get_input_embeddings().weight
    assert torch.equal(student.get_input_embeddings().weight, teacher.get_input_embeddings().weight)


def test_a_narrower_student_has_a_word_head_of_its_own(folders) -> None:
    folder = folders("bert", 0)
    teacher = load_word_teacher(folder, "masked")
    narrow = new_student(load_teacher(folder), EncoderShape(layers=2, hidden=16), 0)
    student = with_word_head(narrow, teacher, seed=0)
    assert student(torch.tensor([[2, 5, 3]])).logits.shape == (1, 3, teacher.config.vocab_size)
    assert torch.equal(student.cls.predictions.bias, teacher.cls.predictions.bias)


def test_a_teacher_without_a_word_head_has_no_soft_labels(folders, tmp_path) -> None:
    AutoModel.from_pretrained(folders("bert", 0)).save_pretrained(tmp_path)
    load_teacher(tmp_path)
    with pytest.raises(ModelError, match="needs a teacher with a masked-LM head, and minilm was saved without one"):
        load_word_teacher(tmp_path, "minilm")


def test_encoders_load_from_masked_models_and_plain_ones(folders, tmp_path) -> None:
    folder = folders("bert", 0)
    expected = AutoModelForMaskedLM.from_pretrained(folder).bert.encoder.state_dict()
    actual = load_teacher(folder).encoder.state_dict()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
