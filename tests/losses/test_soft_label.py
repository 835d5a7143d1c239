import math
from itertools import chain, pairwise

import pytest
import torch

from compress.losses.soft_label import soft_label
from compress.losses.views import VIEWS
from compress.tasks.pooling import pooled
from tests.losses.helpers import drawn, grouped, pieces, slope_of, task, unit

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
    return {name: drawn(*shape, seed=seed + place) for place, (name, shape) in enumerate(SHAPES[problem].items())}


def batch():
    context = torch.tensor([[0, 0, 1, 1, 0], [0, 0, 1, 0, 0]] + [[0, 1, 1, 0, 0]] * 4)
    return pieces(EXAMPLES, TOKENS, LENGTHS) | {"group": grouped(COUNTS), "context": context}


def compared(problem, ours, theirs, temperature=T, arrays=None, about=LONG):
    return soft_label(ours, theirs, arrays or batch(), about, problem, temperature)


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


def slow(problem, ours, theirs):
    both = ours, theirs
    if problem in ("single_label_classification", "multi_label_classification", "regression"):
        rows = [pooled(each["logits"].double().numpy(), COUNTS, "mean").tolist() for each in both]
        distance = {"regression": squared, "multi_label_classification": binary}.get(problem, kl)
        return mean([distance(*each) for each in zip(*rows, strict=True)])
    if problem == "token_classification":
        values = [
            [kl(*(each["logits"][at, t].tolist() for each in both)) for t in range(LENGTHS[at])] for at in range(6)
        ]
        return mean([mean(list(chain(*values[a:b]))) for a, b in pairwise(STARTS)])
    if problem == "question_answering":
        able = [[0] + [place for place in range(1, TOKENS) if line[place]] for line in batch()["context"].tolist()]
        return mean(
            [
                over_rows([kl(*(each[name][at, able[at]].tolist() for each in both)) for at in range(EXAMPLES)])
                for name in ours
            ]
        )
    if problem in ("choice", "ranking"):
        rows = [[part.flatten().tolist() for part in each["logits"].split(COUNTS)] for each in both]
        return mean([kl(*each) for each in zip(*rows, strict=True)])
    vectors = [each["sentence_embedding"].tolist() for each in both]
    return over_rows([squared(*each) for each in zip(*vectors, strict=True)])


@pytest.mark.parametrize("problem", VIEWS)
def test_it_is_the_distance_of_answers(problem):
    ours, theirs = outputs(problem), outputs(problem, seed=9)
    assert compared(problem, ours, theirs).item() == pytest.approx(slow(problem, ours, theirs), rel=1e-4)


@pytest.mark.parametrize("problem", VIEWS)
def test_equal_answers_cost_nothing(problem):
    same = {name: 10 * each for name, each in outputs(problem).items()}
    assert compared(problem, same, same, 2.0).item() == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("problem", VIEWS)
def test_the_gradient_is_the_slope(problem):
    ours, theirs = outputs(problem), outputs(problem, seed=9)
    for name, start in ours.items():
        slope_of(lambda at, name=name: compared(problem, {**ours, name: at}, theirs, 2.0), start)


@pytest.mark.parametrize("problem", VIEWS)
def test_half_precision_is_made_single_first(problem):
    ours, theirs = outputs(problem), outputs(problem, seed=9)
    halves = [{name: value.bfloat16() for name, value in each.items()} for each in (ours, theirs)]
    rounded = [{name: value.float() for name, value in each.items()} for each in halves]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = compared(problem, *halves)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(compared(problem, *rounded).item(), rel=1e-5)


@pytest.mark.parametrize("problem", VIEWS)
def test_a_batch_may_be_split_anywhere(problem):
    ours, theirs, whole = outputs(problem), outputs(problem, seed=9), batch()
    total = 0.0
    for row in range(3):
        mine = whole["group"] == row
        parts = [{name: value[mine] for name, value in each.items()} for each in (ours, theirs, whole)]
        parts[2]["group"] = parts[2]["group"] - row
        total += compared(problem, *parts[:2], arrays=parts[2]).item()
    assert compared(problem, ours, theirs).item() == pytest.approx(total / 3, rel=1e-5)


@pytest.mark.parametrize("problem", ["token_classification", "question_answering"])
def test_padding_never_counts(problem):
    given = [outputs(problem), outputs(problem, seed=9)]

    def wider(each, value):
        return torch.nn.functional.pad(each, (0, 0, 0, 4) if each.ndim == 3 else (0, 4), value=value)

    padded = [{name: wider(each, 9.0 - place) for name, each in one.items()} for place, one in enumerate(given)]
    arrays = {name: each if each.ndim == 1 else wider(each, 0) for name, each in batch().items()}
    found = compared(problem, *padded, arrays=arrays)
    assert found.item() == pytest.approx(compared(problem, *given).item(), rel=1e-5)


def test_one_choice_alone_is_always_agreed_on():
    arrays = {**pieces(1, 2), "group": torch.tensor([0])}
    ours, theirs = {"logits": torch.tensor([[3.0]])}, {"logits": torch.tensor([[-8.0]])}
    assert compared("choice", ours, theirs, arrays=arrays).item() == 0.0


def test_embeddings_of_length_one_are_apart_by_their_cosine():
    ours, theirs = unit(EXAMPLES, 8), unit(EXAMPLES, 8, seed=9)
    arrays = pieces(EXAMPLES, TOKENS)
    found = compared("retrieval", {"sentence_embedding": ours}, {"sentence_embedding": theirs}, arrays=arrays)
    assert found.item() == pytest.approx((2 - 2 * (ours * theirs).sum(dim=1)).mean().item(), rel=1e-5)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="differ"):
        compared("regression", {"logits": drawn(6, 4)}, {"logits": drawn(6, 2)})
    with pytest.raises(ValueError, match="translation"):
        compared("translation", {"logits": drawn(6, 4)}, {"logits": drawn(6, 4)})
