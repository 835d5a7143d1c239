import pytest
import torch
from transformers import AutoModel

from compress.errors import ModelError
from compress.pretrain.methods.relations import RelationsObjective
from tests.pretrain.packed import packed_batch, with_other_padding


@pytest.mark.parametrize("family", ["roberta", "distilbert", "electra", "mobilebert", "albert"])
def test_relations_work_between_families_and_shapes(folders, family: str) -> None:
    teacher = AutoModel.from_pretrained(folders("bert", 0))
    student = AutoModel.from_pretrained(folders(family, 1))
    loss = RelationsObjective(teacher)(student, packed_batch())["relations"]
    assert loss > 0
    loss.backward()
    with torch.no_grad():
        assert RelationsObjective(teacher)(teacher, packed_batch())["relations"] == pytest.approx(0, abs=1e-6)


def test_relations_of_a_family_that_fuses_them_are_refused(folders) -> None:
    with pytest.raises(ModelError, match="modernbert computes query together with others"):
        RelationsObjective(AutoModel.from_pretrained(folders("modernbert", 0)))


def test_the_teacher_gets_no_gradient_and_is_part_of_the_identity(folders) -> None:
    one, two, student = (AutoModel.from_pretrained(folders("bert", seed)) for seed in (0, 1, 2))
    objective = RelationsObjective(one)
    objective(student, packed_batch())["relations"].backward()
    assert all(parameter.grad is None for parameter in one.parameters())
    assert objective.identity() != RelationsObjective(two).identity()


def test_padding_does_not_count(folders) -> None:
    teacher, student = (AutoModel.from_pretrained(folders("bert", seed)).eval() for seed in (0, 1))
    objective, batch = RelationsObjective(teacher), packed_batch()
    wider = objective(student, with_other_padding(batch))["relations"]
    torch.testing.assert_close(wider, objective(student, batch)["relations"])
