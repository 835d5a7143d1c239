"""Balanced class weights, against weights and losses computed by hand."""

import math

import pytest
import torch

from compress.data.encode import encode_rows, training_examples
from compress.model_folder.model_info import TaskInfo
from compress.models.heads import HEADS
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Finetune
from compress.tasks import KINDS, kind_of
from compress.train.core.training_data import fast_tokenizer
from compress.train.distill import distill_from_model
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.finetune import finetune_from_model
from compress.train.objective import TaskObjective, class_weights, forward, with_label_weights

BALANCED = Finetune(class_weights="balanced")
ONE = TaskInfo(name="t", kind="classification", text=("text",), labels=("a", "b"), metric="accuracy", max_length=8)
MANY = ONE.model_copy(update={"kind": "multi_label", "metric": "micro_f1"})


def loss(kind, logits, batch):
    return KINDS[kind].loss.function({"logits": torch.tensor(logits)}, batch, "mean").item()


def test_one_class_of_several():
    rows = [{"label": 0}] * 3 + [{"label": 1}]
    weights = class_weights(BALANCED, rows, ONE)
    assert weights[1].tolist() == pytest.approx([4 / 6, 4 / 2])
    batch = {"input_ids": torch.zeros(2, 1), "labels": torch.tensor([0, 1])}
    weighted = with_label_weights(batch, weights)
    losses = [math.log(1 + math.exp(-2)), math.log(1 + math.exp(1))]
    by_hand = (4 / 6 * losses[0] + 4 / 2 * losses[1]) / 2
    logits = [[2.0, 0.0], [1.0, 0.0]]
    assert loss("classification", logits, weighted) == pytest.approx(by_hand)
    assert loss("classification", logits, batch) == pytest.approx(sum(losses) / 2)


def test_rows_are_counted_as_they_come():
    rows = [{"label": 0}] * 3 + [{"label": 1}]
    assert class_weights(BALANCED, iter(rows), ONE).tolist() == class_weights(BALANCED, rows, ONE).tolist()


def test_several_classes_a_row():
    rows = [{"label": [1.0, 0.0]}] * 3 + [{"label": [1.0, 1.0]}]
    weights = class_weights(BALANCED, rows, MANY)
    assert weights.tolist() == [pytest.approx([2.0, 4 / 6]), pytest.approx([0.5, 2.0])]  # no row is without class a
    batch = {"input_ids": torch.zeros(1, 1), "labels": torch.tensor([[1.0, 0.0]])}
    by_hand = (0.5 * math.log(1 + math.exp(-3)) + 4 / 6 * math.log(1 + math.exp(1))) / 2
    weighted = with_label_weights(batch, weights)
    assert loss("multi_label", [[3.0, 1.0]], weighted) == pytest.approx(by_hand)


def test_all_rows_of_a_window_have_its_weight():
    batch = {"input_ids": torch.zeros(3, 1), "labels": torch.tensor([1, 1, 0]), "group": torch.tensor([0, 0, 1])}
    weighted = with_label_weights(batch, torch.tensor([[0.0, 0.0], [0.5, 3.0]]))
    by_hand = (3 * math.log(2) + 0.5 * math.log(2)) / 2
    assert loss("classification", [[0.0, 0.0]] * 3, weighted) == pytest.approx(by_hand)


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


@pytest.mark.slow
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


TEXTS = ["a very good film", "it was so dull", "great plot", "the film is not bad or dull but fine"]
LABELS = ("bad", "good")
ROWS = {
    "classification": [{"text": text, "text_pair": None, "label": index % 2} for index, text in enumerate(TEXTS)],
    "multi_label": [{"text": text, "text_pair": None, "label": [1.0, 0.0]} for text in TEXTS],
    "regression": [{"text": text, "text_pair": None, "label": 0.5} for text in TEXTS],
    "token_classification": [
        {"words": text.split(), "label": [index % 3 for index in range(len(text.split()))]} for text in TEXTS
    ],
    "question_answering": [
        {"question": "is it good", "context": text, "answers": [text[:4]], "start": 0} for text in TEXTS
    ]
    + [{"question": "is it bad", "context": TEXTS[0], "answers": [], "start": -1}],
    "multiple_choice": [{"text": text, "choices": TEXTS[: 2 + index], "label": 1} for index, text in enumerate(TEXTS)],
    "ranking": [
        {"text": text, "candidates": TEXTS[: 1 + index], "label": [1.0, 0.0, 0.0, 1.0][: 1 + index]}
        for index, text in enumerate(TEXTS)
    ],
    "similarity": [{"text": text, "text_pair": TEXTS[0], "label": 0.3} for text in TEXTS],
    "retrieval": [
        {"query": text, "positives": [TEXTS[index - 1]], "negatives": TEXTS[:index]} for index, text in enumerate(TEXTS)
    ],
}
WINDOWS = {"max_length": 8, "overlap": 2, "max_windows": 4}
CASES = [(kind, "cut") for kind in KINDS] + [
    (kind, long) for kind in ("classification", "multi_label", "regression") for long in ("mean", "max", "attention")
]


def task_of(kind, long="cut"):
    labels = {"token_classification": ("O", "B-x", "I-x"), "classification": LABELS, "multi_label": LABELS}
    columns = ("text", "other")[: KINDS[kind].text_columns[0]]
    windows = WINDOWS if kind == "question_answering" or long != "cut" else {"max_length": 32}
    return TaskInfo(name="t", kind=kind, text=columns, labels=labels.get(kind, ()), metric="m", long=long, **windows)


@pytest.fixture
def made(tiny_model, tiny_tokenizer):
    """(a model for a task, a batch of its rows)."""

    def make(kind, long="cut", **changes):
        task, head = task_of(kind, long), HEADS[KINDS[kind].head]
        names = [str(index) for index in range(KINDS[kind].output_count(task))]
        pooling = {"pooling": "mean"} if head.name == "sentence-embedding" else {}
        model = tiny_model("bert", labels=names, head=head.suffix, **pooling, **changes)
        examples = training_examples(encode_rows(ROWS[kind], task, fast_tokenizer(model.config, tiny_tokenizer)), task)
        arrays = examples.batch(list(range(len(examples.lengths))))
        return model, {name: torch.from_numpy(array) for name, array in arrays.items()}, task

    return make


@pytest.mark.parametrize(("kind", "long"), CASES)
def test_every_kind_trains(kind, long, made):
    model, batch, task = made(kind, long)
    loss = TaskObjective(task)(model, batch)["task"]
    loss.backward()
    assert loss.shape == ()
    assert 0 < loss.item() < 100
    norms = [each.grad.norm() for each in model.parameters() if each.grad is not None]
    assert torch.stack(norms).isfinite().all()
    assert max(norms) > 0


@pytest.mark.parametrize(("kind", "long"), CASES)
def test_every_kind_distils(kind, long, made):
    (student, batch, task), (teacher, _, _) = made(kind, long), made(kind, long)
    everything = Distill(losses={"soft_label": 1.0, "hidden_state": 1.0, "attention": 1.0}, hard_label=0.5)
    losses = DistillObjective(student, teacher, everything, task)(student, batch)
    assert losses["hard_label"].item() == pytest.approx(0.5 * TaskObjective(task)(student, batch)["task"].item())
    for name in everything.loss_names():
        assert losses[name].item() == pytest.approx(0.0, abs=1e-4)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    losses = DistillObjective(student, teacher, everything, task)(student, batch)
    torch.stack(list(losses.values())).sum().backward()
    assert all(0 < losses[name].item() < 1e3 for name in everything.loss_names())
    assert all(each.grad.isfinite().all() for each in student.parameters() if each.grad is not None)


@pytest.mark.parametrize("kind", KINDS)
def test_models_get_input_arrays_only(kind, made, monkeypatch):
    model, batch, task = made(kind)
    seen, real = [], model.forward
    monkeypatch.setattr(model, "forward", lambda **inputs: seen.append(set(inputs)) or real(**inputs))
    forward(model, batch)
    TaskObjective(task)(model, batch)
    assert seen == [{"input_ids", "attention_mask", "token_type_ids"}] * 2


def test_every_kind_is_tried():
    assert set(ROWS) == set(KINDS)
    assert all(kind_of(task_of(kind)).problem for kind in KINDS)
