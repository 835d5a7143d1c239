"""The small benchmarks of distillation: that each runs in its trial form, and that what they compare is the same."""

import json

import pytest
import torch

from benchmarks import (
    cache_difference,
    cache_speed,
    light_students,
    real_task,
    relation_memory,
    shared_parts,
    student_starts,
)
from compress.recipe.loss_schema import Relation
from compress.recipe.student_schema import Part
from compress.recipe.task_schema import Data, Task


@pytest.fixture
def films(tmp_path, monkeypatch, tiny_folder):
    """Rows of few words in the place of SST-2's; gives a teacher of two layers that knows their labels."""
    words = ["great", "fine", "dull", "bad"]
    lines = [f"the film is {words[row % 4]} {'so ' * (row % 5)},{('good', 'bad')[row % 4 // 2]}" for row in range(120)]
    for role in ("train", "test"):
        (tmp_path / f"{role}.csv").write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")

    def task(limit):
        data = Data(train=str(tmp_path / "train.csv"), test=str(tmp_path / "test.csv"), limit=limit)
        labels = ("bad", "good")
        return Task(name="films", kind="classification", data=data, labels=labels, max_length=32), "films"

    monkeypatch.setattr(real_task, "source_task", task)
    return str(tiny_folder("bert"))


def test_all_at_once_is_the_same_loss_with_the_same_gradients():
    vectors, settings = relation_memory.random_inputs(relation_memory.Case(2, 8, 4)), Relation(heads=4)
    losses = []
    for way in relation_memory.WAYS.values():
        loss = way(*vectors, settings)
        losses.append([loss, *torch.autograd.grad(loss, list(vectors[0].values()))])
    for full, chunked in zip(*losses, strict=True):
        assert torch.allclose(full, chunked, atol=1e-6)


def test_costs_become_ratios():
    full, chunked = [(3 * 2**30, 2.0), (2**30, 8.0), (2**30, 4.0)], [(2**29, 2.0)]
    row = relation_memory.table_row(relation_memory.Case(32, 128, 12), full, chunked)
    assert list(row.values())[1:] == ["3,072 MiB", "512 MiB", "6.0", "4.00", "2.00", "2.00"]


def test_first_and_second_epoch_of_a_turn_are_timed_separately(monkeypatch):
    def turn(case, updates, keeps):
        return [9.0, 2.0, 2.0, 1.0, 1.0, 1.0] if keeps else [9.0, 3.0, 3.0]

    monkeypatch.setattr(cache_speed, "_turn", turn)
    case = cache_speed.ALL[0]
    seconds = cache_speed.measure(case, 2, 1)
    assert seconds == [3.0, 2.0, 1.0]
    assert list(cache_speed.line(case, seconds).values())[-2:] == ["3.00", "0.67"]


def test_differences_are_the_largest_of_all_batches():
    seen = cache_difference.BatchLosses([(2.0, 2.0, 2.5), (4.0, 3.0, 4.0)])
    assert seen.cells() == ("3", "1.0e+00", "2.5e-01", "2.5e-01", "1.00")


def test_means_come_with_their_spread():
    assert student_starts.format_range([0.5, 0.7]) == "60.0 % (50.0 to 70.0)"
    assert student_starts.format_range([0.5]) == "50.0 %"


def test_cached_outputs_give_the_losses_of_a_fresh_pass(films, capsys):
    assert cache_difference.main(["--teacher", films, "--trial", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["precision"], row["loss"]) for row in rows} == {
        (precision, loss) for precision in ("fp32", "bf16") for loss in cache_difference.LOSSES
    }
    layers = [row for row in rows if row["precision"] == "fp32" and row["loss"] != "soft_label"]
    assert all(float(row["relative"]) < 1e-4 for row in layers)


def test_a_teacher_of_another_task_is_refused(films, tiny_model, tiny_folder, capsys):
    other = str(tiny_folder(tiny_model("bert", labels=("a", "b", "c"))))
    assert cache_difference.main(["--teacher", other, "--trial"]) == 1
    assert "has no head for classification" in capsys.readouterr().err


@pytest.mark.slow
def test_every_initialisation_is_scored(films, capsys):
    assert student_starts.main(["--teacher", films, "--trial", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["start"] for row in rows] == [start.name for start in student_starts.starts(32)]
    assert rows[3]["score before"] == rows[4]["score before"]  # the same random weights


@pytest.mark.slow
def test_every_light_student_is_scored(films, capsys):
    assert light_students.main(["--teacher", films, "--trial", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["student"] for row in rows] == ["the teacher", *light_students.STUDENTS]


@pytest.mark.slow
def test_the_cache_is_timed(capsys):
    assert cache_speed.main(["--trial", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["losses"] for row in rows] == ["soft_label", "soft_label, hidden_state, attention"]


@pytest.mark.slow
@pytest.mark.skipif(not relation_memory.RESET_PEAK.is_file(), reason="only Linux reports a process's peak")
def test_maps_at_once_take_more_memory(capsys):
    assert relation_memory.main(["--trial", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert float(row["times less"]) > 0


def test_parts_are_spread_over_their_sizes_and_trained_in_every_way():
    parts = [Part(layers=1, heads=1, ffn=width) for width in range(1, 11)]
    assert [part.ffn for part in shared_parts.spread(parts, 2)] == [3, 8]
    assert shared_parts.spread(parts, 10) == parts
    ways = shared_parts.training_ways(shared_parts.parse(["--epochs", "0", "3"]))
    assert {name: settings and settings.epochs for name, settings in ways.items()} == {
        "as a new student": "auto",
        "0 epochs": None,
        "3 epochs": 3.0,
    }
