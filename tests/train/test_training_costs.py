"""The cost of a training, against figures computed by hand."""

import numpy as np
import pytest

from compress.measure.resources.footprint import flops
from compress.model_folder.model_info import ShapeInfo
from compress.models.last_layers_head import BiLSTM
from compress.recipe.distill_schema import Distill
from compress.recipe.training_schema import Finetune
from compress.train.core.checkpoints import TrainResult
from compress.train.training_costs import (
    disk,
    finished_weights,
    memory,
    probe_operations,
    teachers_run,
    throughput_of,
    training_operations,
)

SHAPE = ShapeInfo(
    family="bert",
    hidden=384,
    heads=(12,) * 6,
    ffn=(1536,) * 6,
    vocabulary=30522,
    parameters=22_700_000,
    embedding_parameters=11_900_000,
    head_size=32,
)
LENGTHS = np.full(100, 20)
ROW = flops(SHAPE, 20)


def result_of(rows: int, seconds: float) -> TrainResult:
    fields = {"seed": 0, "score": None, "best_at": 0, "updates": 1, "precision": "fp32"}
    return TrainResult(**fields, rows=rows, seconds=seconds, pieces=rows * 20, squares=rows * 400)


def test_rows_are_those_of_all_epochs_or_of_max_steps():
    def rows(settings):
        return training_operations(settings, SHAPE, (), 1000, LENGTHS) / (3 * ROW)

    assert rows(Finetune(epochs=2.5)) == pytest.approx(2500)
    assert rows(Finetune(epochs={"least": 1, "most": 4})) == pytest.approx(4000)
    assert rows(Finetune(epochs=2.5, max_steps=10, batch_size=8, accumulate=2)) == pytest.approx(160)


def test_operations_are_those_of_the_trained_model_and_its_teachers():
    assert training_operations(Finetune(epochs=2), SHAPE, (), 1000, LENGTHS) == pytest.approx(3 * ROW * 2000)
    cached, uncached = (Distill(epochs=2, cache=cache) for cache in (True, False))
    assert training_operations(cached, SHAPE, [SHAPE], 1000, LENGTHS) == pytest.approx(3 * ROW * 2000 + ROW * 1000)
    assert training_operations(uncached, SHAPE, [SHAPE], 1000, LENGTHS) == pytest.approx(4 * ROW * 2000)


@pytest.mark.parametrize(
    ("head", "settings", "rows", "passes"),
    [
        ("sequence-classification", Finetune(), 1000, 2000),
        ("sequence-classification", Finetune(pooling="mean", restarts=3), 1000, 3000),
        ("token-classification", Finetune(), 1000, 1000),
        ("sequence-classification", Finetune(), 100_000, 20_000),
        ("sentence-embedding", Finetune(), 1000, 0),
        ("sequence-classification", Finetune(init="random"), 1000, 0),
        ("sequence-classification", Finetune(method="frozen", pooling="cls"), 100_000, 100_000),
        ("sequence-classification", Distill(), 1000, 0),
    ],
)
def test_a_probe_encodes_a_sample_of_the_rows_once_a_pooling(head, settings, rows, passes):
    """With two classes, fitting costs little beside that for texts, and some times as much for tags."""
    settings = settings.model_copy(update={"epochs": 50.0})
    encoding = passes * ROW
    assert encoding <= probe_operations(settings, SHAPE, head, 2, rows, 20.0, 400.0) <= 5 * encoding


def test_a_plan_has_the_bounded_work_of_fitting_many_classes():
    settings = Finetune(epochs={"least": 1, "most": 6}, pooling="mean")

    def operations(outputs, head="sequence-classification"):
        return probe_operations(settings, SHAPE, head, outputs, 10_000, 20.0, 400.0)

    training = 3 * ROW * 10_000 * 3.5
    assert 10_000 * ROW < operations(2) < operations(1_000) <= 0.1 * training * 1.0001
    assert operations(159, "token-classification") <= 0.1 * training * 1.0001


def test_teacher_runs_only_for_losses_that_need_it():
    assert teachers_run(Distill(), SHAPE) == (SHAPE,)
    assert teachers_run(Finetune(), SHAPE) == teachers_run(Distill(losses={}, hard_label=1.0), SHAPE) == ()


def test_throughput_of_a_training_forecasts_the_same_training():
    settings = Distill(epochs=2, restarts=3)
    best = result_of(2000, 50.0).model_copy(update={"all_seconds": 150.0, "epochs": 2.0})
    throughput = throughput_of(best, settings, SHAPE, [SHAPE])
    operations = training_operations(settings, SHAPE, [SHAPE], 1000, LENGTHS)
    assert throughput.seconds_per_operation * operations == pytest.approx(150.0)
    assert throughput.trained == 150.0


def test_a_frozen_encoder_is_not_trained():
    assert training_operations(Finetune(method="frozen"), SHAPE, (), 1000, LENGTHS) == 0


def test_of_a_head_on_stored_features_the_head_is_trained():
    settings = Finetune(features="last4", head="bilstm", epochs=2, seeds=3)
    hidden = SHAPE.hidden
    weights = sum(weight.numel() for weight in BiLSTM(4 * hidden, hidden).parameters() if weight.ndim > 1)
    pieces = float(LENGTHS.mean()) * 2000
    operations = training_operations(settings, SHAPE, (), 1000, LENGTHS)
    assert operations == pytest.approx(3 * 3 * 2 * weights * pieces)
    assert probe_operations(settings, SHAPE, "token-classification", 9, 100_000, 20.0, 400.0) == pytest.approx(
        100_000 * ROW
    )
    assert disk(settings, SHAPE, (), 1000, 20) - disk(Finetune(), SHAPE, (), 1000, 20) == 4 * 4 * hidden * 20_000


def test_weights_of_all_trainings_are_kept_until_the_best_is_known():
    assert finished_weights(Finetune(), SHAPE) == 0
    assert finished_weights(Finetune(seeds=2, grid={"epochs": [2, 3]}), SHAPE) == 3 * 4 * SHAPE.parameters


def test_throughput_of_unknown_families_is_unknown():
    other = SHAPE.model_copy(update={"family": "mobilebert"})
    assert throughput_of(result_of(2000, 50.0), Finetune(), other, ()) is None


def test_memory_grows_with_batch_length_and_teachers():
    base = memory(Finetune(batch_size=32), SHAPE, (), 20)
    assert base > 16 * SHAPE.parameters
    assert memory(Finetune(batch_size=64), SHAPE, (), 20) > base
    assert memory(Finetune(batch_size=32), SHAPE, (), 128) > base
    assert memory(Distill(batch_size=32), SHAPE, [SHAPE], 20) == base + 4 * SHAPE.parameters


def test_disk_includes_the_teacher_cache_up_to_its_limit():
    without = disk(Distill(epochs=3, cache=False), SHAPE, [SHAPE], 1000, 20)
    assert without > 9 * 4 * SHAPE.parameters
    assert disk(Distill(epochs=3), SHAPE, [SHAPE], 1000, 20) > without
    of_layers = Distill(epochs=3, losses={"attention": 1.0, "relation": 1.0})
    parts = 2 * SHAPE.layers + 3  # queries and keys of each layer; queries, keys and values of the last
    assert disk(of_layers, SHAPE, [SHAPE], 1000, 20) - without == 4 * 1000 * (1 + parts * SHAPE.hidden * 20)
    capped = Distill(epochs={"least": 1, "most": 3}, cache={"disk": 1_000_000})
    assert disk(capped, SHAPE, [SHAPE], 1000, 20) == without + 1_000_000
    assert disk(Distill(epochs=1), SHAPE, [SHAPE], 1000, 20) == without
