import math
from itertools import chain, pairwise

import pytest
import torch

from compress.losses.distillation.soft_label import soft_label
from compress.recipe.loss_schema import SoftLabel
from compress.tasks.decoding import pool_window_logits
from tests.losses.helpers import OUTPUTS, drawn, grouped, pieces, task, unit

COUNTS, STARTS = [2, 1, 3], [0, 2, 3, 6]
LENGTHS = [5, 3, 4, 5, 2, 5]
TOKENS, EXAMPLES, T = 5, 6, 3.0
SHAPES = {
    "single_label_classification": {"logits": (EXAMPLES, 4)},
    "multi_label_classification": {"logits": (EXAMPLES, 4)},
    "regression": {"logits": (EXAMPLES, 1)},
    "token_classification": {"logits": (EXAMPLES, TOKENS, 3)},
    "question_answering": {"start_logits": (EXAMPLES, TOKENS), "end_logits": (EXAMPLES, TOKENS)},
    "choice": {"logits": (EXAMPLES, 1)},
    "ranking": {"logits": (EXAMPLES, 1)},
    "similarity": {"sentence_embedding": (EXAMPLES, 8)},
    "retrieval": {"sentence_embedding": (EXAMPLES, 8)},
}
LONG = task(long="mean", labels=("a", "b", "c", "d"))


def outputs(problem, seed=0):
    return {name: drawn(*shape, seed=seed + index) for index, (name, shape) in enumerate(SHAPES[problem].items())}


def batch():
    context = torch.tensor([[0, 0, 1, 1, 0], [0, 0, 1, 0, 0]] + [[0, 1, 1, 0, 0]] * 4)
    return pieces(EXAMPLES, TOKENS, LENGTHS) | {"group": grouped(COUNTS), "context": context}


def compared(problem, ours, theirs, temperature=T, arrays=None, about=LONG, **options):
    settings = SoftLabel(temperature=None if options.get("form") == "mse" else temperature, **options)
    return soft_label(ours, theirs, arrays or batch(), about.long, OUTPUTS[problem], settings)


def kl(ours, theirs):
    """Of two lists of logits."""
    p, q = ([math.exp(value / T) for value in each] for each in (theirs, ours))
    return T**2 * sum(a / sum(p) * math.log(a / sum(p) / (b / sum(q))) for a, b in zip(p, q, strict=True))


def binary(ours, theirs):
    total = 0.0
    for ours_each, theirs_each in zip(ours, theirs, strict=True):
        p, q = 1 / (1 + math.exp(-theirs_each / T)), 1 / (1 + math.exp(-ours_each / T))
        total += p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    return T**2 * total / len(ours)


def squared(ours, theirs):
    return sum((a - b) ** 2 for a, b in zip(ours, theirs, strict=True))


def mean(values):
    return sum(values) / len(values)


def over_rows(examples):
    """The mean of each row's examples, then of rows."""
    return mean([mean(examples[start:end]) for start, end in pairwise(STARTS)])


def logits(ours, theirs):
    return squared(ours, theirs) / len(ours)


def decoupled(ours, theirs, right=None):
    """By the paper's words: the true class against the rest, and the rest among themselves."""
    right = theirs.index(max(theirs)) if right is None else right
    parts = []
    for each in (theirs, ours):
        odds = [math.exp(value / T) for value in each]
        total = sum(odds)
        sure = odds.pop(right) / total
        parts.append(((sure, 1 - sure), [value / sum(odds) for value in odds]))
    first, second = (
        sum(p * math.log(p / q) for p, q in zip(*pair, strict=True) if p > 1e-12) for pair in zip(*parts, strict=True)
    )
    return T**2 * (first + 8 * second)


def slow(problem, ours, theirs, form="kl"):
    both = ours, theirs
    soft = {"kl": kl, "mse": logits, "decoupled": decoupled}[form]
    if problem in ("single_label_classification", "multi_label_classification", "regression"):
        rows = [pool_window_logits(each["logits"].double().numpy(), COUNTS, "mean").tolist() for each in both]
        several = logits if form == "mse" else binary
        distance = {"regression": squared, "multi_label_classification": several}.get(problem, soft)
        return mean([distance(*each) for each in zip(*rows, strict=True)])
    if problem == "token_classification":
        values = [
            [soft(*(each["logits"][at, t].tolist() for each in both)) for t in range(LENGTHS[at])] for at in range(6)
        ]
        return mean([mean(list(chain(*values[a:b]))) for a, b in pairwise(STARTS)])
    if problem == "question_answering":
        able = [[0] + [index for index in range(1, TOKENS) if line[index]] for line in batch()["context"].tolist()]
        return mean(
            [
                over_rows([soft(*(each[name][at, able[at]].tolist() for each in both)) for at in range(EXAMPLES)])
                for name in ours
            ]
        )
    if problem in ("choice", "ranking"):
        rows = [[part.flatten().tolist() for part in each["logits"].split(COUNTS)] for each in both]
        return mean([soft(*each) for each in zip(*rows, strict=True)])
    vectors = [each["sentence_embedding"].tolist() for each in both]
    return over_rows([squared(*each) for each in zip(*vectors, strict=True)])


FORMS = ("kl", "mse", "decoupled")
ALL = [(problem, form) for problem in OUTPUTS for form in FORMS]


@pytest.mark.parametrize(("problem", "form"), ALL)
def test_loss_equals_reference_implementation(problem, form):
    ours, theirs = outputs(problem), outputs(problem, seed=9)
    expected = slow(problem, ours, theirs, form)
    assert compared(problem, ours, theirs, form=form).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("problem", "form"), ALL)
def test_equal_outputs_have_zero_loss(problem, form):
    same = {name: 10 * each for name, each in outputs(problem).items()}
    assert compared(problem, same, same, 2.0, form=form).item() == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(("problem", "form"), ALL)
def test_the_gradient_is_that_of_finite_differences(problem, form):
    ours, theirs = ({name: each.double() for name, each in outputs(problem, seed).items()} for seed in (0, 9))

    def loss(*given):
        return compared(problem, dict(zip(ours, given, strict=True)), theirs, 2.0, form=form)

    assert torch.autograd.gradcheck(loss, [each.requires_grad_() for each in ours.values()])


@pytest.mark.parametrize(("problem", "form"), ALL)
def test_the_teacher_gets_no_gradient(problem, form):
    ours, theirs = ({name: each.requires_grad_() for name, each in outputs(problem, seed).items()} for seed in (0, 9))
    compared(problem, ours, theirs, form=form).backward()
    assert all(each.grad is None for each in theirs.values())
    assert all(each.grad.any() for each in ours.values())


@pytest.mark.parametrize(("problem", "form"), ALL)
@pytest.mark.parametrize("whose", [0, 1])
def test_nan_output_gives_nan_loss(problem, form, whose):
    """As the answer 0 a student would follow it, and no training would stop."""
    both = outputs(problem), outputs(problem, seed=9)
    for answer in both[whose].values():
        answer[2, :1] = torch.nan
    assert compared(problem, *both, form=form).isnan()


@pytest.mark.parametrize(("problem", "form"), ALL)
def test_bf16_outputs_are_converted_to_float32(problem, form):
    ours, theirs = outputs(problem), outputs(problem, seed=9)
    halves = [{name: value.bfloat16() for name, value in each.items()} for each in (ours, theirs)]
    rounded = [{name: value.float() for name, value in each.items()} for each in halves]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = compared(problem, *halves, form=form)
    assert result.dtype == torch.float32
    assert result.item() == pytest.approx(compared(problem, *rounded, form=form).item(), rel=1e-5)


@pytest.mark.parametrize(("problem", "form"), ALL)
def test_loss_is_independent_of_batch_split(problem, form):
    ours, theirs, whole = outputs(problem), outputs(problem, seed=9), batch()
    total = 0.0
    for row in range(3):
        mine = whole["group"] == row
        parts = [{name: value[mine] for name, value in each.items()} for each in (ours, theirs, whole)]
        parts[2]["group"] = parts[2]["group"] - row
        total += compared(problem, *parts[:2], arrays=parts[2], form=form).item()
    assert compared(problem, ours, theirs, form=form).item() == pytest.approx(total / 3, rel=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("problem", ["token_classification", "question_answering"])
def test_padding_does_not_change_the_result(problem, form):
    given = [outputs(problem), outputs(problem, seed=9)]

    def wider(each, value):
        return torch.nn.functional.pad(each, (0, 0, 0, 4) if each.ndim == 3 else (0, 4), value=value)

    padded = [{name: wider(each, 9.0 - index) for name, each in one.items()} for index, one in enumerate(given)]
    arrays = {name: each if each.ndim == 1 else wider(each, 0) for name, each in batch().items()}
    result = compared(problem, *padded, arrays=arrays, form=form)
    assert result.item() == pytest.approx(compared(problem, *given, form=form).item(), rel=1e-6)


def test_single_choice_has_zero_loss():
    arrays = {**pieces(1, 2), "group": torch.tensor([0])}
    ours, theirs = {"logits": torch.tensor([[3.0]])}, {"logits": torch.tensor([[-8.0]])}
    assert compared("choice", ours, theirs, arrays=arrays).item() == 0.0
    assert compared("choice", ours, theirs, arrays=arrays, form="decoupled").item() == 0.0


@pytest.mark.parametrize("form", ["kl", "decoupled"])
def test_single_class_has_zero_loss(form):
    arrays = {**pieces(2, 2), "labels": torch.tensor([0, 0])}
    ours, theirs = {"logits": drawn(2, 1).requires_grad_()}, {"logits": drawn(2, 1, seed=1)}
    loss = compared("single_label_classification", ours, theirs, arrays=arrays, form=form)
    loss.backward()
    assert loss.item() == 0.0
    assert not ours["logits"].grad.any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 4])
def test_confident_teacher_and_wrong_student_give_finite_loss(form, rows):
    arrays = {**pieces(rows, 2), "labels": torch.zeros(rows, dtype=torch.int64)}
    sure = torch.tensor([[300.0, -300.0, 0.0]]).repeat(rows, 1)
    logits = (-sure).requires_grad_()
    loss = compared("single_label_classification", {"logits": logits}, {"logits": sure}, 1.0, arrays, form=form)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
    assert logits.grad.any()


def test_embedding_distance_equals_two_minus_two_cosine():
    ours, theirs = unit(EXAMPLES, 8), unit(EXAMPLES, 8, seed=9)
    arrays = pieces(EXAMPLES, TOKENS)
    result = compared("retrieval", {"sentence_embedding": ours}, {"sentence_embedding": theirs}, arrays=arrays)
    assert result.item() == pytest.approx((2 - 2 * (ours * theirs).sum(dim=1)).mean().item(), rel=1e-5)


def test_at_a_high_temperature_divergence_is_half_the_squared_difference():
    """Of logits that add up to the same."""
    both = [{"logits": each - each.mean(dim=-1, keepdim=True)} for each in (drawn(6, 4), drawn(6, 4, seed=9))]
    doubled = [{"logits": each["logits"].double()} for each in both]
    hot = compared("single_label_classification", *doubled, 1e3)
    cold = compared("single_label_classification", *doubled, form="mse")
    assert 2 * hot.item() == pytest.approx(cold.item(), rel=1e-2)
