import pytest
import torch

from compress.losses.distillation.margin import margin
from tests.losses.helpers import pieces, slope_of, unit

PART = [0, 1, 2, 0, 1, 2, 2, 2]
GROUP = [0, 0, 0, 1, 1, 1, 1, 1]
SCORES = [0.0, 4.0, -1.0, 0.0, 6.5, 7.0, 1.0, -3.0]


def made(part=PART, group=GROUP, scores=SCORES):
    batch = {"part": torch.tensor(part), "group": torch.tensor(group), "scores": torch.tensor(scores)}
    return {"sentence_embedding": unit(len(part), 8)}, {**pieces(len(part), 3), **batch}


def test_loss_is_squared_difference_of_margins():
    outputs, batch = made()
    vectors = outputs["sentence_embedding"].tolist()

    def cosine(a, b):
        return sum(x * y for x, y in zip(vectors[a], vectors[b], strict=True))

    rows = []
    for query, positive, negatives in ((0, 1, [2]), (3, 4, [5, 6, 7])):
        apart = [
            20 * (cosine(query, positive) - cosine(query, other)) - (SCORES[positive] - SCORES[other])
            for other in negatives
        ]
        rows.append(sum(each**2 for each in apart) / len(apart))
    assert margin(outputs, batch, "cut").item() == pytest.approx(sum(rows) / 2, rel=1e-4)


def test_equal_margins_have_zero_loss():
    outputs, batch = made()
    vectors = outputs["sentence_embedding"]
    query = vectors[torch.tensor([0, 0, 0, 3, 3, 3, 3, 3])]
    scores = 20 * (query * vectors).sum(dim=1) + 7.0  # the same for all documents: margins stay
    assert margin(outputs, {**batch, "scores": scores}, "cut").item() == pytest.approx(0.0, abs=1e-6)


def test_the_gradient_is_the_slope():
    outputs, batch = made(scores=[score / 10 for score in SCORES])
    slope_of(lambda at: margin({"sentence_embedding": at}, batch, "cut") / 100, outputs["sentence_embedding"])


def test_gradient_reaches_queries_and_documents():
    outputs, batch = made()
    vectors = outputs["sentence_embedding"].requires_grad_(True)
    margin(outputs, batch, "cut").backward()
    assert (vectors.grad.abs().sum(dim=1) > 0).all()


def test_row_without_negatives_has_zero_loss():
    outputs, batch = made([0, 1], [0, 0], [0.0, 3.0])
    vectors = outputs["sentence_embedding"].requires_grad_(True)
    loss = margin(outputs, batch, "cut")
    loss.backward()
    assert loss.item() == 0.0
    assert torch.isfinite(vectors.grad).all()


def test_bf16_outputs_are_converted_to_float32():
    outputs, batch = made()
    half = outputs["sentence_embedding"].bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = margin({"sentence_embedding": half}, batch, "cut")
    assert result.dtype == torch.float32
    assert result.item() == pytest.approx(margin({"sentence_embedding": half.float()}, batch, "cut").item(), rel=1e-6)
