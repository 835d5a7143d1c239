"""The gain of further threads: the order of the turns, the ratios made of their times, and a run in small."""

import pytest
import torch

from benchmarks import second_thread
from benchmarks.training_step import Case

TINY = Case("tiny, 8 tokens", 8, 1, 0, (("hidden_size", 32), ("num_attention_heads", 4), ("intermediate_size", 64)), 4)


@pytest.fixture(autouse=True)
def threads():
    """Leave the number of threads as it was."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


@pytest.fixture
def timed(monkeypatch):
    """Updates of 4 and 3 seconds with one thread, of half as much with two and one second more in the second round."""
    turns = []

    def trained(model, objective, examples, settings, clock):
        count = torch.get_num_threads()
        turns.append(count)
        return [9.0, 9.0, *(seconds / count + (len(turns) > 2) for seconds in (4.0, 3.0))]

    monkeypatch.setattr(second_thread, "build", lambda case, training: (None, None))
    monkeypatch.setattr(second_thread, "trained", trained)
    monkeypatch.setattr(second_thread, "_products", lambda case, dtype: [6.0 / (1 + torch.get_num_threads())])
    return turns


def test_turns_alternate_and_the_shortest_times_count(timed):
    cost = second_thread.measure(TINY, 2, 2, 2, "fp32", min)
    assert timed == [1, 2, 2, 1]
    assert cost == {"one": 8 / 7, "several": 8 / 3.5, "update": 2.0, "product": 1.5}


def test_the_gain_of_an_update_is_a_share_of_that_of_a_product():
    cost = {"one": 100.0, "several": 150.04, "update": 1.5, "product": 2.0}
    row = second_thread._row(cost, 2)
    assert list(row.values()) == ["100.0", "150.0", "1.50", "2.00", "75%"]
    assert "2 threads" in row


def test_cases_are_chosen_by_name(timed, capsys):
    assert second_thread.main(["--only", "3 layers, 25", "--updates", "1", "--rounds", "2"]) == 0
    out = capsys.readouterr().out
    assert "MiniLM to 3 layers, 25 tokens" in out
    assert "128 tokens" not in out


def test_a_run_in_small(monkeypatch, capsys):
    monkeypatch.setattr(second_thread, "CPU", (TINY,))
    assert second_thread.main(["--updates", "1", "--rounds", "1", "--precision", "bf16"]) == 0
    assert "tiny, 8 tokens" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        second_thread.main(["--updates", "0"])
    assert "expected 1 or more" in capsys.readouterr().err
