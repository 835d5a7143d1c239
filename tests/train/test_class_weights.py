"""Balanced class weights, against weights and losses computed by hand."""

import math

import pytest
import torch

from compress.losses import TASK_LOSSES
from compress.model_info import TaskInfo
from compress.recipe.distill_schema import Distill
from compress.recipe.finetune_schema import Finetune
from compress.train.class_weights import class_weights, with_label_weights
from compress.train.distill import distill_from_model
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.finetune import finetune_from_model
from compress.train.objective import TaskObjective

BALANCED = Finetune(class_weights="balanced")
ONE = TaskInfo(name="t", kind="classification", text=("text",), labels=("a", "b"), metric="accuracy", max_length=8)
MANY = ONE.model_copy(update={"kind": "multi_label", "metric": "micro_f1"})


def loss(problem, logits, batch):
    return TASK_LOSSES[problem].function({"logits": torch.tensor(logits)}, batch, "mean").item()


def test_one_class_of_several():
    rows = [{"label": 0}] * 3 + [{"label": 1}]
    weights = class_weights(BALANCED, rows, ONE)
    assert weights[1].tolist() == pytest.approx([4 / 6, 4 / 2])
    batch = {"input_ids": torch.zeros(2, 1), "labels": torch.tensor([0, 1])}
    weighted = with_label_weights(batch, weights)
    losses = [math.log(1 + math.exp(-2)), math.log(1 + math.exp(1))]
    by_hand = (4 / 6 * losses[0] + 4 / 2 * losses[1]) / 2
    logits = [[2.0, 0.0], [1.0, 0.0]]
    assert loss("single_label_classification", logits, weighted) == pytest.approx(by_hand)
    assert loss("single_label_classification", logits, batch) == pytest.approx(sum(losses) / 2)


def test_several_classes_a_row():
    rows = [{"label": [1.0, 0.0]}] * 3 + [{"label": [1.0, 1.0]}]
    weights = class_weights(BALANCED, rows, MANY)
    assert weights.tolist() == [pytest.approx([2.0, 4 / 6]), pytest.approx([0.5, 2.0])]  # no row is without class a
    batch = {"input_ids": torch.zeros(1, 1), "labels": torch.tensor([[1.0, 0.0]])}
    by_hand = (0.5 * math.log(1 + math.exp(-3)) + 4 / 6 * math.log(1 + math.exp(1))) / 2
    weighted = with_label_weights(batch, weights)
    assert loss("multi_label_classification", [[3.0, 1.0]], weighted) == pytest.approx(by_hand)


def test_all_rows_of_a_window_have_its_weight():
    batch = {"input_ids": torch.zeros(3, 1), "labels": torch.tensor([1, 1, 0]), "group": torch.tensor([0, 0, 1])}
    weighted = with_label_weights(batch, torch.tensor([[0.0, 0.0], [0.5, 3.0]]))
    by_hand = (3 * math.log(2) + 0.5 * math.log(2)) / 2
    assert loss("single_label_classification", [[0.0, 0.0]] * 3, weighted) == pytest.approx(by_hand)


def test_nothing_changes_unless_it_is_requested(tiny_task, rows):
    assert class_weights(Finetune(), rows(4), tiny_task) is None
    batch = {"labels": torch.tensor([1])}
    assert with_label_weights(batch, None) is batch


def test_objectives_weigh_the_loss_on_true_labels_alone(tiny_model, tiny_task):
    model, teacher = tiny_model("bert").eval(), tiny_model("bert")
    batch = {
        "input_ids": torch.tensor([[5, 6], [6, 7]]),
        "attention_mask": torch.ones(2, 2, dtype=torch.int64),
        "labels": torch.tensor([1, 1]),
    }
    weights = torch.tensor([[1.0, 1.0], [1.0, 2.0]])
    plain, weighted = (TaskObjective(tiny_task, given)(model, batch)["task"] for given in (None, weights))
    assert weighted.item() == pytest.approx(2 * plain.item())
    batch["labelled"] = torch.tensor([1.0, 0.0])
    settings = Distill.model_validate({"losses": {"soft_label": 1.0}})
    both = [
        DistillObjective(model, teacher, settings, tiny_task, weights=given)(model, batch) for given in (None, weights)
    ]
    assert both[1]["hard_label"].item() == pytest.approx(2 * both[0]["hard_label"].item())
    assert both[1]["soft_label"].item() == both[0]["soft_label"].item()


def test_trainings_use_them(tiny_model, tiny_tokenizer, tiny_task, rows, same_weights):
    uneven = [row for number, row in enumerate(rows(60)) if row["label"] or not number % 5]
    settings = {"epochs": 1, "batch_size": 8, "precision": "fp32"}
    for train in (
        lambda **more: finetune_from_model(
            tiny_model("bert"), tiny_tokenizer, uneven, [], tiny_task, Finetune(**settings, **more)
        ),
        lambda **more: distill_from_model(
            tiny_model("bert"), tiny_model("bert"), tiny_tokenizer, uneven, [], tiny_task, Distill(**settings, **more)
        ),
    ):
        assert not same_weights(train(), train(class_weights="balanced"))
