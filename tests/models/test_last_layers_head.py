"""The BiLSTM without packed sequences, against torch's own with them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from compress.families import FAMILIES
from compress.model_folder.model_info import TaskInfo
from compress.models import load, load_model
from compress.models.embedding_model import mean_pool
from compress.models.encoder_parts import base_of, layers_of
from compress.models.last_layers_head import LAYERS, BiLSTM, last_layers, mirrored_positions
from compress.models.load_save import output_layer
from compress.models.student.build_student import build_student
from compress.recipe.student_schema import Student
from compress.runtime import open_predictor
from tests.variant_builder import build


def packed(ours: BiLSTM, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return what torch's bidirectional LSTM with the same weights gives for packed sequences."""
    size = ours.forwards[0].hidden_size
    own = nn.LSTM(states.shape[-1], size, LAYERS, batch_first=True, bidirectional=True)
    weights = {}
    for layer, pair in enumerate(zip(ours.forwards, ours.backwards, strict=True)):
        for lstm, suffix in zip(pair, ("", "_reverse"), strict=True):
            weights |= {f"{name[:-1]}{layer}{suffix}": value for name, value in lstm.state_dict().items()}
    own.load_state_dict(weights)
    sequences = pack_padded_sequence(states, mask.sum(dim=1), batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(own(sequences)[0], batch_first=True)[0]


@pytest.mark.parametrize("lengths", [(6, 6), (6, 1, 3)])
def test_it_computes_what_packed_sequences_give(lengths):
    torch.manual_seed(0)
    ours, states = BiLSTM(8, 3), torch.randn(len(lengths), max(lengths), 8)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    with torch.no_grad():
        given, expected = ours(states, mask), packed(ours, states, mask)
    torch.testing.assert_close(given[mask.bool()], expected[mask.bool()])


def test_padding_stays_where_it_is():
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    assert mirrored_positions(mask).tolist() == [[2, 1, 0, 3, 4], [4, 3, 2, 1, 0]]


KINDS = {"classification": "accuracy", "token_classification": "f1", "question_answering": "f1"}


@pytest.fixture
def reading_four(tiny_model, tiny_folder, tiny_task):
    """A tiny encoder of a family with a new head on four of its five layers."""

    def make(family, kind="classification", head_layers=None):
        depth = {"n_layers" if family == "distilbert" else "num_hidden_layers": 5}
        folder = tiny_folder(tiny_model(family, head="Model", **depth), task=None)
        labels = () if kind == "question_answering" else tiny_task.labels
        task = TaskInfo.model_validate({**dict(tiny_task), "kind": kind, "metric": KINDS[kind], "labels": labels})
        model = load_model(folder, task, features="last4", head_layers=head_layers).eval()
        with torch.no_grad():
            model.classifier.weight.mul_(10)
        return model, task

    return make


def outputs(model, arrays):
    model.train(False)
    with torch.no_grad():
        return model(**arrays)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_head_reads_four_layers_and_comes_back_bit_for_bit(name, kind, reading_four, batch, tiny_folder):
    model, task = reading_four(name, kind)
    arrays = batch(model)
    with torch.no_grad():
        states = torch.cat(base_of(model)(**arrays, output_hidden_states=True).hidden_states[-4:], dim=-1)
    assert output_layer(model).in_features == states.shape[-1] == 4 * model.config.hidden_size
    read = mean_pool(states, arrays["attention_mask"]) if kind == "classification" else states
    given = outputs(model, arrays)
    values = given.logits if kind != "question_answering" else torch.stack([*given.values()], dim=-1)
    torch.testing.assert_close(values, model.classifier(read), atol=1e-4, rtol=1e-4)
    again = load(tiny_folder(model, task))
    assert again.config.head_features == "last4"
    repeated = outputs(again, arrays)
    assert all(torch.equal(given[key], repeated[key]) for key in given)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_students_read_the_last_layer_alone(name, kind, reading_four, batch):
    teacher, _ = reading_four(name, kind)
    student = build_student(teacher, Student(layers=2))
    assert getattr(student.config, "head_features", None) is None
    last, size = output_layer(student), student.config.hidden_size
    assert torch.equal(last.weight, teacher.classifier.weight[:, -size:])
    assert name == "albert" or len(layers_of(student)) == 2
    outputs(student, batch(student))


@pytest.mark.parametrize("kind", KINDS)
def test_labels_give_the_loss_of_the_family_s_own_class(kind, reading_four, batch):
    model, _ = reading_four("bert", kind)
    arrays = batch(model)
    rows, tokens = arrays["input_ids"].shape
    targets = {
        "classification": {"labels": torch.arange(rows) % 2},
        "token_classification": {"labels": torch.arange(rows * tokens).reshape(rows, tokens) % 2},
        "question_answering": {"start_positions": torch.ones(rows).long(), "end_positions": torch.ones(rows).long()},
    }[kind]
    given = outputs(model, arrays | targets)
    expected = {"start_positions": "start_logits", "end_positions": "end_logits", "labels": "logits"}
    losses = [
        F.cross_entropy(given[expected[name]].flatten(0, target.ndim - 1), target.flatten())
        for name, target in targets.items()
    ]
    torch.testing.assert_close(given.loss, sum(losses) / len(losses))
    assert outputs(model, arrays).loss is None
    assert len(outputs(model, arrays | {"output_hidden_states": True}).hidden_states) == 6


@pytest.mark.parametrize("name", FAMILIES)
def test_a_bilstm_reads_the_four_layers_of_each_token_and_comes_back_bit_for_bit(
    name, reading_four, batch, tiny_folder
):
    model, task = reading_four(name, "token_classification", "bilstm")
    arrays = batch(model)
    with torch.no_grad():
        states = last_layers(base_of(model)(**arrays, output_hidden_states=True).hidden_states)
        read = model.bilstm(states, arrays["attention_mask"])
    assert output_layer(model).in_features == read.shape[-1] == 2 * model.config.hidden_size
    assert all(weight.std() > 0.01 for weight in model.bilstm.parameters() if weight.ndim > 1)
    given = outputs(model, arrays)
    torch.testing.assert_close(given.logits, model.classifier(read), atol=1e-4, rtol=1e-4)
    again = load(tiny_folder(model, task))
    assert again.config.head_layers == "bilstm"
    assert torch.equal(given.logits, outputs(again, arrays).logits)
    student = build_student(model, Student(layers=2))
    assert getattr(student.config, "head_layers", None) is None
    outputs(student, batch(student))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "head_layers"),
    [("classification", None), ("token_classification", None), ("token_classification", "bilstm")],
)
@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_exports_agree(name, kind, head_layers, reading_four, batch, tiny_folder, tmp_path):
    model, task = reading_four(name, kind, head_layers)
    source = tiny_folder(model, task)
    (tmp_path / "onnx").mkdir()
    build("onnx-fp32", source, tmp_path / "onnx")
    given = {key: value.numpy() for key, value in batch(model).items()}
    exported = open_predictor(tmp_path / "onnx").predict(given)["logits"]
    expected = open_predictor(source).predict(given)["logits"]
    mask = given["attention_mask"].astype(bool) if kind == "token_classification" else slice(None)
    assert abs(exported[mask] - expected[mask]).max() < (1e-5 if head_layers else 1e-4)
    first = slice(int(given["attention_mask"][0].sum()))
    alone = open_predictor(tmp_path / "onnx").predict({key: value[:1, first] for key, value in given.items()})
    assert (
        abs(alone["logits"][0] - (exported[0, first] if kind == "token_classification" else exported[0])).max() < 1e-5
    )


def test_without_a_mask_no_token_is_padding(reading_four):
    model, _ = reading_four("bert", "token_classification", "bilstm")
    ids = torch.tensor([[2, 5, 9, 3]])
    expected = outputs(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}).logits
    assert torch.equal(outputs(model, {"input_ids": ids}).logits, expected)
