import pytest

from compress.errors import CompressError
from compress.train import processes as of_a_training


def test_a_process_that_is_gone_is_told_in_our_words(monkeypatch):
    def broken(tensor):
        raise RuntimeError("[pair.cc:537] Connection reset by peer\nGLHF!")

    processes = of_a_training.Processes()
    processes.count = 2
    monkeypatch.setattr(of_a_training, "broadcast", broken)
    with pytest.raises(CompressError, match="another process of this training") as caught:
        processes.from_main(1.0)
    assert "Connection reset by peer" in str(caught.value)
    assert "GLHF" not in str(caught.value)
    assert "checkpoint" in caught.value.hint
