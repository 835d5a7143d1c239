import pytest
import torch
from transformers import AutoModelForMaskedLM

from compress.pretrain.methods.bert_pretraining import MaskedLMObjective
from compress.pretrain.methods.triple import WEIGHTS, TripleObjective
from compress.pretrain.pretrain_schema import MaskedLM
from tests.pretrain.packed import MASK, packed_batch, with_other_padding


def triple(teacher) -> TripleObjective:
    return TripleObjective(teacher, 2.0, MaskedLMObjective(MaskedLM(share=0.4), MASK, seed=0))


def test_the_weights_are_those_of_distilbert() -> None:
    assert WEIGHTS == {"soft_label": 5.0, "masked_lm": 2.0, "hidden_cosine": 1.0}


def test_a_student_like_its_teacher_has_only_the_loss_of_true_pieces(folders) -> None:
    teacher = AutoModelForMaskedLM.from_pretrained(folders("bert", 0))
    with torch.no_grad():
        losses = triple(teacher)(teacher, packed_batch())
    assert losses["soft_label"] == pytest.approx(0, abs=1e-4)
    assert losses["hidden_cosine"] == pytest.approx(0, abs=1e-5)
    assert losses["masked_lm"] > 1


def test_the_triple_loss_in_plain_steps(folders) -> None:
    """Computed again without hooks, row by row, from whole logits."""
    teacher = AutoModelForMaskedLM.from_pretrained(folders("bert", 0)).eval()
    student = AutoModelForMaskedLM.from_pretrained(folders("bert", 1)).eval()
    batch, objective = packed_batch(), triple(teacher)
    with torch.no_grad():
        losses = objective(student, batch)
    masked, targets = objective.masks.masked(student, batch)
    expected = dict.fromkeys(WEIGHTS, 0.0)
    for row in range(4):
        length = int(batch["attention_mask"][row].sum())
        text, true = masked[row : row + 1, :length], targets[row, :length]
        with torch.no_grad():
            ours, theirs = (model(text, output_hidden_states=True) for model in (student, teacher))
        at = true != -100
        p, q = (output.logits[0, at].div(2).log_softmax(-1) for output in (theirs, ours))
        if at.any():
            expected["soft_label"] += float(4 * (p.exp() * (p - q)).sum(-1).mean()) / 4
            expected["masked_lm"] += float(torch.nn.functional.cross_entropy(ours.logits[0, at], true[at])) / 4
        cosine = torch.cosine_similarity(ours.hidden_states[-1][0], theirs.hidden_states[-1][0], dim=-1)
        expected["hidden_cosine"] += float((1 - cosine).mean()) / 4
    assert {name: float(value) for name, value in losses.items()} == pytest.approx(
        {name: WEIGHTS[name] * value for name, value in expected.items()}, rel=1e-4
    )


def test_vectors_of_other_widths_are_not_compared(folders) -> None:
    teacher = AutoModelForMaskedLM.from_pretrained(folders("bert", 0))
    config = type(teacher.config).from_dict({**teacher.config.to_dict(), "hidden_size": 16})
    student = AutoModelForMaskedLM.from_config(config)
    assert set(triple(teacher)(student, packed_batch())) == {"soft_label", "masked_lm"}


def test_padding_does_not_count(folders) -> None:
    teacher, student = (AutoModelForMaskedLM.from_pretrained(folders("bert", seed)).eval() for seed in (0, 1))
    objective, batch = triple(teacher), packed_batch()
    for name, value in objective(student, with_other_padding(batch)).items():
        torch.testing.assert_close(value, objective(student, batch)[name])
