"""What training minimises, for every kind on the rows it really has."""

import pytest
import torch

from compress.data.encode import encode_rows, training_examples
from compress.model_info import TaskInfo
from compress.models.heads import HEADS
from compress.recipe.distill_schema import Distill
from compress.tasks import KINDS, kind_of
from compress.train.core.training_data import fast_tokenizer
from compress.train.distillation.distill_objective import DistillObjective
from compress.train.objective import TaskObjective, forward

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
