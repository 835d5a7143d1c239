import pytest
import torch

from compress.errors import CompressError, UsageError
from compress.recipe.distill_schema import Distill
from compress.train.core import distributed
from compress.train.distillation.layer_pairs import check_local_batch_size


def test_lost_process_gives_a_readable_error(monkeypatch):
    def broken(tensor):
        raise RuntimeError("[pair.cc:537] Connection reset by peer. Check the logs. GLHF!")

    processes = distributed.Processes()
    processes.count = 2
    monkeypatch.setattr(distributed, "broadcast", broken)
    with pytest.raises(CompressError, match="another process of this training") as caught:
        processes.from_main(1.0)
    assert "Connection reset by peer" in str(caught.value)
    assert "GLHF" not in str(caught.value)
    assert "checkpoint" in caught.value.hint


@pytest.mark.parametrize("loss", ["similarity", "contrast"])
def test_batch_losses_need_two_texts_per_process(loss):
    check_local_batch_size(Distill(losses={loss: 1.0}, batch_size=4), 2)
    check_local_batch_size(Distill(losses={"soft_label": 1.0}, batch_size=2), 2)
    with pytest.raises(UsageError, match=f"{loss}: .* gives some of 2 processes only 1") as caught:
        check_local_batch_size(Distill(losses={loss: 1.0}, batch_size=3), 2)
    assert "4 or more" in caught.value.hint


def test_gradients_are_summed_without_copies(monkeypatch):
    processes = distributed.Processes()
    processes.count = 2
    learning = [
        torch.nn.Parameter(torch.zeros(2, 3)),
        torch.nn.Parameter(torch.zeros(4)),
        torch.nn.Parameter(torch.zeros(1)),
    ]
    learning[0].grad, learning[2].grad = torch.arange(6.0).view(2, 3), torch.ones(1)
    exchanged = []

    def doubled(flat):
        exchanged.append(flat)
        flat.mul_(2)

    monkeypatch.setattr(torch.distributed, "all_reduce", doubled)
    summed = processes.sum_gradients(learning, torch.tensor([5.0, 7.0]))
    assert summed.tolist() == [10, 14]
    assert learning[0].grad.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert learning[1].grad is None
    assert learning[2].grad.tolist() == [2]
    (flat,) = exchanged
    assert {each.untyped_storage().data_ptr() for each in (summed, learning[0].grad, learning[2].grad)} == {
        flat.untyped_storage().data_ptr()
    }
