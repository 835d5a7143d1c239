import math

import pytest
import torch

from compress.tasks.decoding import pool_window_logits
from tests.losses.helpers import TASK_LOSSES, drawn, grouped, pieces, slope_of, task, unit

COUNTS = [2, 1, 3]
LENGTHS = [5, 3, 4, 5, 2, 5]
TOKENS = 5
EXAMPLES = 6


def softmax(values):
    top = max(values)
    odds = [math.exp(value - top) for value in values]
    return [each / sum(odds) for each in odds]


def of_rows(values):
    ends = [sum(COUNTS[: row + 1]) for row in range(len(COUNTS))]
    return [values[end - count : end] for end, count in zip(ends, COUNTS, strict=True)]


def cases(long="mean"):
    """For each problem (outputs, batch, task), rows of 2, 1 and 3 examples."""
    text = pieces(EXAMPLES, TOKENS, LENGTHS) | {"group": grouped(COUNTS)}
    labels = torch.full((EXAMPLES, TOKENS), -100)
    for example, index, tag in ((0, 1, 2), (0, 3, 0), (1, 1, 1), (3, 1, 1), (3, 2, 2), (5, 4, 0)):
        labels[example, index] = tag
    context = torch.tensor([[0, 0, 1, 1, 0], [0, 0, 1, 0, 0]] + [[0, 1, 1, 0, 0]] * 4)
    spans = {"start": torch.tensor([2, 0, 1, 1, 0, 2]), "end": torch.tensor([3, 0, 2, 1, 0, 2]), "context": context}
    once = torch.tensor([0, 1, 2]).repeat_interleave(torch.tensor(COUNTS))
    marks = drawn(3, 3).gt(0).float().repeat_interleave(torch.tensor(COUNTS), dim=0)
    numbers = drawn(3).repeat_interleave(torch.tensor(COUNTS))
    width = 3 + (long == "attention")
    pairs = {"group": grouped([2, 2, 2]), "labels": torch.tensor([0.9, 0.9, 0.2, 0.2, 0.5, 0.5])}
    result = torch.tensor([0, 1, 0, 1, 2, 0, 1, 2, 2])
    windows = task(long=long, labels=("a", "b", "c"))
    searched = {**pieces(9, TOKENS), "group": grouped([2, 3, 4]), "part": result}
    return {
        "single_label_classification": ({"logits": drawn(EXAMPLES, width)}, {**text, "labels": once}, windows),
        "multi_label_classification": ({"logits": drawn(EXAMPLES, width)}, {**text, "labels": marks}, windows),
        "regression": ({"logits": drawn(EXAMPLES, width - 2)}, {**text, "labels": numbers}, windows),
        "token_classification": ({"logits": drawn(EXAMPLES, TOKENS, 3)}, {**text, "labels": labels}, task()),
        "question_answering": (
            {"start_logits": drawn(EXAMPLES, TOKENS), "end_logits": drawn(EXAMPLES, TOKENS, seed=1)},
            {**text, **spans},
            task(),
        ),
        "choice": ({"logits": drawn(EXAMPLES, 1)}, {**text, "labels": torch.tensor([0.0, 1, 1, 0, 0, 1])}, task()),
        "ranking": ({"logits": drawn(EXAMPLES, 1)}, {**text, "labels": torch.tensor([1.0, 0, 1, 1, 0, 1])}, task()),
        "similarity": ({"sentence_embedding": unit(EXAMPLES, 8)}, {**text, **pairs}, task()),
        "retrieval": ({"sentence_embedding": unit(9, 8)}, searched, task()),
    }


def slow_rows(outputs, batch, about):
    """Pooled logits and labels of each row."""
    logits = pool_window_logits(outputs["logits"].double().numpy(), COUNTS, about.long).tolist()
    return list(zip(logits, [part[0].tolist() for part in batch["labels"].split(COUNTS)], strict=True))


def slow_classes(outputs, batch, about):
    return [-math.log(softmax(z)[y]) for z, y in slow_rows(outputs, batch, about)]


def slow_several_labels(outputs, batch, about):
    result = []
    for row, marks in slow_rows(outputs, batch, about):
        chances = [1 / (1 + math.exp(-z)) for z in row]
        result.append(sum(-math.log(p if y else 1 - p) for p, y in zip(chances, marks, strict=True)) / len(marks))
    return result


def slow_number(outputs, batch, about):
    return [(row[0] - y) ** 2 for row, y in slow_rows(outputs, batch, about)]


def slow_tags(outputs, batch, about):
    rows, start = [], 0
    for count in COUNTS:
        result = []
        for example in range(start, start + count):
            for token, label in enumerate(batch["labels"][example].tolist()):
                if label != -100:
                    result.append(-math.log(softmax(outputs["logits"][example, token].tolist())[label]))
        rows.append(sum(result) / len(result) if result else 0.0)
        start += count
    return rows


def slow_spans(outputs, batch, about):
    windows = []
    for example in range(EXAMPLES):
        able = [0] + [index for index in range(1, TOKENS) if batch["context"][example, index]]
        total = 0.0
        for name in ("start", "end"):
            chances = softmax([outputs[f"{name}_logits"][example, index].item() for index in able])
            total -= math.log(chances[able.index(batch[name][example].item())]) / 2
        windows.append(total)
    return [sum(each) / len(each) for each in of_rows(windows)]


def slow_choice(outputs, batch, about):
    scores, labels = of_rows(outputs["logits"].flatten().tolist()), of_rows(batch["labels"].tolist())
    return [-math.log(softmax(row)[marks.index(1.0)]) for row, marks in zip(scores, labels, strict=True)]


def slow_ranking(outputs, batch, about):
    rows = []
    for scores, labels in zip(
        of_rows(outputs["logits"].flatten().tolist()), of_rows(batch["labels"].tolist()), strict=True
    ):
        chances = softmax(scores)
        right = [-math.log(chance) for chance, label in zip(chances, labels, strict=True) if label > 0]
        rows.append(sum(right) / len(right) if 0 < len(right) < len(labels) else 0.0)
    return rows


def slow_similarity(outputs, batch, about):
    vectors, labels = outputs["sentence_embedding"].tolist(), batch["labels"].tolist()
    cosines = [sum(a * b for a, b in zip(*vectors[at : at + 2], strict=True)) for at in (0, 2, 4)]
    return [(cosine - labels[2 * row]) ** 2 for row, cosine in enumerate(cosines)]


def slow_contrast(outputs, batch, about):
    vectors, part, group = outputs["sentence_embedding"].tolist(), batch["part"].tolist(), batch["group"].tolist()
    documents = [at for at, which in enumerate(part) if which > 0]
    rows = []
    for query in (at for at, which in enumerate(part) if which == 0):
        scores = [20 * sum(a * b for a, b in zip(vectors[query], vectors[at], strict=True)) for at in documents]
        own = next(i for i, at in enumerate(documents) if group[at] == group[query] and part[at] == 1)
        rows.append(-math.log(softmax(scores)[own]))
    return rows


SLOW = {
    "single_label_classification": slow_classes,
    "multi_label_classification": slow_several_labels,
    "regression": slow_number,
    "token_classification": slow_tags,
    "question_answering": slow_spans,
    "choice": slow_choice,
    "ranking": slow_ranking,
    "similarity": slow_similarity,
    "retrieval": slow_contrast,
}
POOLED = ["single_label_classification", "multi_label_classification", "regression"]


def value(problem, outputs, batch, about):
    return TASK_LOSSES[problem].function(outputs, batch, about.long)


@pytest.mark.parametrize("problem", TASK_LOSSES)
def test_a_loss_is_the_mean_of_its_rows(problem):
    outputs, batch, about = cases()[problem]
    rows = SLOW[problem](outputs, batch, about)
    assert value(problem, outputs, batch, about).item() == pytest.approx(sum(rows) / len(rows), rel=1e-4)


@pytest.mark.parametrize("problem", POOLED)
@pytest.mark.parametrize("long", ["max", "attention"])
def test_windows_are_pooled_before_the_loss(problem, long):
    outputs, batch, about = cases(long)[problem]
    rows = SLOW[problem](outputs, batch, about)
    assert value(problem, outputs, batch, about).item() == pytest.approx(sum(rows) / len(rows), rel=1e-4)


@pytest.mark.parametrize("problem", TASK_LOSSES)
def test_the_gradient_is_the_slope(problem):
    outputs, batch, about = cases()[problem]
    for name, start in outputs.items():
        slope_of(lambda at, name=name: value(problem, {**outputs, name: at}, batch, about), start)


@pytest.mark.parametrize("problem", TASK_LOSSES)
def test_bf16_outputs_are_converted_to_float32(problem):
    outputs, batch, about = cases()[problem]
    halves = {name: each.bfloat16() for name, each in outputs.items()}
    rounded = {name: each.float() for name, each in halves.items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = value(problem, halves, batch, about)
    assert result.dtype == torch.float32
    assert result.item() == pytest.approx(value(problem, rounded, batch, about).item(), rel=1e-5)


FILLING = {"labels": -100, "context": 0, "input_ids": 0, "attention_mask": 0}


@pytest.mark.parametrize("problem", TASK_LOSSES)
def test_padding_does_not_change_the_result(problem):
    outputs, batch, about = cases()[problem]

    def wider(name, each):
        if each.ndim < 2 or each.shape[1] != TOKENS:
            return each
        sides = (0, 0, 0, 4) if each.ndim == 3 else (0, 4)
        return torch.nn.functional.pad(each, sides, value=FILLING.get(name, 9.0))

    padded = [{name: wider(name, each) for name, each in arrays.items()} for arrays in (outputs, batch)]
    assert value(problem, *padded, about).item() == pytest.approx(
        value(problem, outputs, batch, about).item(), rel=1e-5
    )


@pytest.mark.parametrize("problem", [problem for problem in TASK_LOSSES if problem != "retrieval"])
def test_loss_is_independent_of_batch_split(problem):
    outputs, batch, about = cases()[problem]
    total = 0.0
    for row in range(3):
        mine = batch["group"] == row
        part = {name: each[mine] for name, each in batch.items()} | {"group": torch.zeros(int(mine.sum())).long()}
        total += value(problem, {name: each[mine] for name, each in outputs.items()}, part, about).item()
    assert value(problem, outputs, batch, about).item() == pytest.approx(total / 3, rel=1e-5)


def test_rows_without_tagged_words_have_zero_loss():
    outputs, batch, about = cases()["token_classification"]
    logits = outputs["logits"].clone().requires_grad_(True)
    loss = value("token_classification", {"logits": logits}, {**batch, "labels": torch.full((6, 5), -100)}, about)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.isfinite(logits.grad).all()


def test_impossible_positions_do_not_compete():
    outputs, batch, about = cases()["question_answering"]
    loud = {name: each.clone() for name, each in outputs.items()}
    for each in loud.values():
        each[:, 1:][batch["context"][:, 1:] == 0] = 50.0
    result = [value("question_answering", given, batch, about).item() for given in (outputs, loud)]
    assert result[0] == pytest.approx(result[1])


@pytest.mark.parametrize(("problem", "label"), [("choice", 1.0), ("ranking", 1.0), ("ranking", 0.0)])
def test_single_candidate_has_zero_loss(problem, label):
    logits = torch.tensor([[3.0]], requires_grad=True)
    batch = {**pieces(1, 2), "group": torch.tensor([0]), "labels": torch.tensor([label])}
    loss = value(problem, {"logits": logits}, batch, task())
    loss.backward()
    assert (loss.item(), logits.grad.item()) == (0.0, 0.0)


@pytest.mark.parametrize("label", [0.0, 1.0, 2.0])
def test_equally_relevant_candidates_have_zero_loss(label):
    logits = drawn(3, 1).requires_grad_(True)
    batch = {**pieces(3, 2), "group": torch.zeros(3).long(), "labels": torch.full((3,), label)}
    loss = value("ranking", {"logits": logits}, batch, task())
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(logits.grad, torch.zeros(3, 1))


def test_a_candidate_that_is_twice_as_right_counts_twice():
    logits = drawn(3, 1)
    batch = {**pieces(3, 2), "group": torch.zeros(3).long(), "labels": torch.tensor([2.0, 0.0, 1.0])}
    logs = logits.flatten().log_softmax(0).tolist()
    expected = -(2 * logs[0] + logs[2]) / 3
    assert value("ranking", {"logits": logits}, batch, task()).item() == pytest.approx(expected)


def search(parts, groups, ids=None, seed=0):
    batch = {**pieces(len(parts), 2), "part": torch.tensor(parts), "group": torch.tensor(groups)}
    if ids is not None:
        batch["input_ids"] = torch.tensor(ids)[:, None].expand(-1, 2)
    return {"sentence_embedding": unit(len(parts), 8, seed=seed)}, batch


def test_single_row_without_negatives_has_zero_loss():
    outputs, batch = search([0, 1], [0, 0])
    vectors = outputs["sentence_embedding"].requires_grad_(True)
    loss = value("retrieval", outputs, batch, task())
    loss.backward()
    assert loss.item() == 0.0
    assert torch.isfinite(vectors.grad).all()


def test_duplicate_positive_is_not_a_negative():
    # Two queries with the same positive (7), and the same one as a negative of a third; only 8 and 9 are negatives.
    parts, groups, ids = [0, 1, 0, 1, 0, 1, 2], [0, 0, 1, 1, 2, 2, 2], [1, 7, 2, 7, 3, 8, 7]
    outputs, batch = search(parts, groups, ids)
    vectors = outputs["sentence_embedding"]

    def log_share(query, own, others):
        scores = [20 * (vectors[query] @ vectors[at]).item() for at in (own, *others)]
        return -math.log(softmax(scores)[0])

    expected = (log_share(0, 1, [5]) + log_share(2, 3, [5]) + log_share(4, 5, [1, 3, 6])) / 3
    assert value("retrieval", outputs, batch, task()).item() == pytest.approx(expected, rel=1e-4)


def test_the_other_answers_to_an_equal_query_are_no_negatives():
    outputs, batch = search([0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 2], [1, 7, 1, 8, 2, 9])
    vectors = outputs["sentence_embedding"]

    def log_share(query, own, others):
        scores = [20 * (vectors[query] @ vectors[at]).item() for at in (own, *others)]
        return -math.log(softmax(scores)[0])

    expected = (log_share(0, 1, [5]) + log_share(2, 3, [5]) + log_share(4, 5, [1, 3])) / 3
    assert value("retrieval", outputs, batch, task()).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        ("single_label_classification", torch.tensor([0, 2, 1, 1])),
        ("multi_label_classification", drawn(4, 3).gt(0).float()),
        ("regression", drawn(4)),
    ],
)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_uncut_numbers_are_those_of_transformers(problem, labels, precision, tiny_model):
    names = ("score",) if problem == "regression" else ("a", "b", "c")
    model = tiny_model("bert", labels=names, problem_type=problem)
    text = {**pieces(4, 6, [6, 3, 5, 2]), "token_type_ids": torch.zeros(4, 6).long()}
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision is torch.bfloat16):
        theirs = model(**text, labels=labels).loss
        ours = value(problem, model(**text), {**text, "labels": labels}, task(labels=names))
    assert ours.item() == theirs.item()


def test_graded_candidates_are_ranked_without_a_wrong_one():
    ids, logits = torch.zeros(3, 1, dtype=torch.int64), torch.tensor([[0.3], [0.1], [0.2]])
    batch = {"input_ids": ids, "group": torch.zeros(3, dtype=torch.int64)}

    def of(labels):
        return value("ranking", {"logits": logits}, {**batch, "labels": torch.tensor(labels)}, task()).item()

    assert of([1.0, 2.0, 3.0]) == pytest.approx(of([0.0, 1.0, 2.0]))
    assert of([1.0, 2.0, 3.0]) > 0
    assert of([2.0, 2.0, 2.0]) == 0
