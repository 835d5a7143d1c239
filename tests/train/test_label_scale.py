"""Numbers are learnt in units of their spread, from their mean; outputs keep the unit of the labels."""

import pytest
import torch

from compress.console import Console
from compress.model_folder.model_info import TaskInfo
from compress.models.load_save import output_layer
from compress.recipe.training_schema import Finetune
from compress.train.core import training_data
from compress.train.finetune import finetune_from_model
from compress.train.label_scale import LabelScale, label_scale
from compress.train.last_layer_fit import fit_last_layer
from compress.train.objective import TaskObjective, forward

TASK = TaskInfo(name="prices", kind="regression", text=("text",), metric="pearson", max_length=32)
WORDS = ("bad", "film", "very", "good")


def rows_of(count: int, factor: float = 1.0, offset: float = 0.0):
    """Texts whose number grows with the place of their word."""
    return [
        {"text": f"a {WORDS[number % 4]} plot", "text_pair": None, "label": factor * (number % 4) + offset}
        for number in range(count)
    ]


@pytest.fixture
def model(tiny_model):
    return tiny_model("bert", num_labels=1, problem_type="regression")


def outputs_of(model, batch):
    with torch.no_grad():
        return forward(model.train(False), batch)["logits"]


@pytest.fixture
def batch():
    ids = torch.tensor([[2, 5, 6, 3], [2, 7, 8, 3]])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}


def test_only_numbers_have_a_scale():
    scale = label_scale(rows_of(8, 10.0, 50.0), TASK)
    assert scale == LabelScale(65.0, pytest.approx(125**0.5))
    for constant in (3.0, 0.1, 0.0):
        assert label_scale(rows_of(100, 0.0, constant), TASK) == LabelScale(pytest.approx(constant), 1.0)
    assert label_scale(rows_of(8), TASK.model_copy(update={"kind": "classification", "labels": ("a", "b")})) is None


def test_a_trained_head_answers_as_before(model, batch):
    last = output_layer(model)
    torch.nn.init.constant_(last.bias, 0.7)
    before = outputs_of(model, batch)
    with LabelScale(50_000.0, 300.0).learnt_by(model):
        torch.testing.assert_close(outputs_of(model, batch), before, atol=0.02, rtol=0)  # of numbers of 50,000
        assert last.bias.item() == pytest.approx((0.7 - 50_000) / 300)
    torch.testing.assert_close(outputs_of(model, batch), before, atol=0.02, rtol=0)


def test_a_new_head_begins_with_the_mean(model, batch):
    with LabelScale(50_000.0, 300.0).learnt_by(model):
        during = outputs_of(model, batch)
        assert during.mean().item() == pytest.approx(50_000, abs=300)
    torch.testing.assert_close(outputs_of(model, batch), during)


def test_further_outputs_which_weigh_windows_have_no_unit():
    standard = torch.tensor([[1.0, 2.0]])
    assert LabelScale(10.0, 3.0).outputs(standard).tolist() == [[13.0, 2.0]]


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 0.0), (0.001, 0.0), (1000.0, 50_000.0)])
def test_labels_of_any_size_are_learnt(factor, offset, tiny_model, tiny_tokenizer):
    model = tiny_model("bert", num_labels=1, problem_type="regression")
    rows = rows_of(64, factor, offset)
    settings = Finetune(epochs=8, batch_size=8, learning_rate=3e-3)
    trained = finetune_from_model(model, tiny_tokenizer, rows, rows[:16], TASK, settings)
    ids = [tiny_tokenizer(row["text"], return_tensors="pt") for row in rows[:4]]
    answers = [(outputs_of(trained, dict(each)).item() - offset) / factor for each in ids]
    assert answers[0] < 0.6
    assert answers[3] == pytest.approx(3, abs=0.6)


@pytest.mark.parametrize(("factor", "offset"), [(0.001, 0.0), (1000.0, 50_000.0)])
def test_the_penalty_of_a_fitted_layer_counts_in_the_unit_of_the_labels(factor, offset, model, tiny_tokenizer):
    fitted = []
    for unit in ((1.0, 0.0), (factor, offset)):
        rows = rows_of(64, *unit)
        tokens = training_data.fast_tokenizer(model.config, tiny_tokenizer)
        examples = training_data.from_rows(rows, (), TASK, tokens, Console("quiet")).train
        scale = label_scale(rows, TASK)
        fitted.append(fit_last_layer(model, examples, TaskObjective(TASK, None, scale).loss_of, 0, scale=scale))
    assert fitted[1].info.strength == fitted[0].info.strength
    torch.testing.assert_close(fitted[1].weight / factor, fitted[0].weight, rtol=1e-2, atol=1e-3)
