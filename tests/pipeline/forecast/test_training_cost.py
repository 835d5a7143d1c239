"""What a training comes to, against figures worked out by hand and models that were built."""

import numpy as np
import pytest

from compress.measure.resources.flops import flops
from compress.measure.timing.step_time_fit import BatchLoad, StepTimeFit, batch_load
from compress.model_info import ShapeInfo
from compress.pipeline.forecast.throughput_history import Rates, seconds_of
from compress.pipeline.forecast.training_cost import LEARNING, Lengths, cached, disk, memory, operations, workload
from compress.recipe.training_schema import Distill, Finetune

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
SHORT = Lengths(rows=1000, sample=np.full(100, 20))


def rates(**given) -> Rates:
    told = {"update": 0.1, "operation": 1e-12, "again": 1.0, "parameters": SHAPE.parameters, "evaluation": None}
    return Rates(**{**told, "trained": 1.0, **given})


def test_operations_are_those_of_a_forward_pass():
    lengths = np.array([5, 9, 7])
    assert operations(SHAPE, batch_load(lengths)) == flops(SHAPE, 9, batch=3)
    assert operations(SHAPE.model_copy(update={"family": "mobilebert"}), BatchLoad(5, 25)) == 0


def test_updates_and_pieces_are_those_of_the_training():
    work = workload(SHAPE, (SHAPE,), Distill(epochs=2.5, batch_size=32, accumulate=2), SHORT)
    assert work.updates == (16, 24)
    assert work.first == BatchLoad(20_000, 400_000)
    assert work.later == BatchLoad(30_000, 600_000)
    assert work.flops(work.first) == 4 * operations(SHAPE, work.first)
    assert workload(SHAPE, (SHAPE,), Finetune(batch_size=32, max_steps=8), SHORT).first == BatchLoad(5_000, 100_000)


def test_a_teacher_that_nothing_asks_costs_nothing():
    for settings in (Finetune(), Distill(losses={}, hard_label=1.0)):
        assert workload(SHAPE, (SHAPE,), settings, SHORT).teachers == ()


def test_seconds_follow_length_depth_and_what_is_kept():
    work = workload(SHAPE, (SHAPE,), Distill(epochs=2, batch_size=50), SHORT)
    plain = seconds_of(rates(), work, 0)
    assert plain == pytest.approx(0.1 * 40 + 1e-12 * work.flops(work.first + work.later))
    assert seconds_of(rates(again=0.5), work, 0) == pytest.approx(0.75 * plain)
    half = SHAPE.model_copy(update={"heads": (12,) * 3, "ffn": (1536,) * 3})
    assert seconds_of(rates(update=0.0), workload(half, (), Finetune(), SHORT), 0) == pytest.approx(
        seconds_of(rates(update=0.0), workload(SHAPE, (), Finetune(), SHORT), 0) / 2
    )
    long = workload(SHAPE, (SHAPE,), Distill(epochs=2, batch_size=50), Lengths(1000, np.full(100, 40)))
    assert 2 < seconds_of(rates(update=0.0), long, 0) / seconds_of(rates(update=0.0), work, 0) < 2.1
    looks = seconds_of(rates(evaluation=1e-12), work, 500) - plain
    assert looks == pytest.approx(2 * 500 * flops(SHAPE, 20) * 1e-12)


def test_memory_holds_weights_and_the_longest_batch(monkeypatch):
    monkeypatch.setattr("compress.pipeline.forecast.training_cost.cuda_devices", list)
    settings = Finetune(batch_size=32, precision="bf16")
    works = [workload(SHAPE, (), settings, Lengths(1000, np.full(9, size))) for size in (8, 128)]
    little, much = (memory(work, settings) for work in works)
    assert little > LEARNING * SHAPE.parameters
    monkeypatch.setattr("compress.pipeline.forecast.training_cost.cuda_devices", lambda: ["one"])
    fused = [memory(work, settings) for work in works]
    assert (fused[1] - fused[0]) / (32 * 120) == pytest.approx(1.4 * 6 * (18 * 384 + 4 * 1536), rel=1e-6)
    monkeypatch.setattr("compress.pipeline.forecast.training_cost.cuda_devices", list)
    assert much - fused[1] == 2 * 2 * 6 * 12 * 32 * 128**2  # two maps a layer
    full = memory(works[1], Finetune(batch_size=32, precision="fp32"))
    layers = 6 * (18 * 384 + 4 * 1536) * 32 * 128
    assert full - fused[1] == pytest.approx(4 * 12 * (3 * 6 + 4) * 32 * 128**2 + (2 - 1.4) * layers, rel=1e-6)
    asked = memory(workload(SHAPE, (SHAPE,), Distill(), SHORT), Distill())
    assert asked > memory(workload(SHAPE, (), Finetune(), SHORT), Finetune()) + 4 * SHAPE.parameters


def test_disk_holds_what_the_teacher_said_within_the_budget(monkeypatch):
    monkeypatch.setattr("compress.pipeline.forecast.training_cost.cuda_devices", list)
    full = Distill(precision="fp32")
    everything = workload(SHAPE, (SHAPE,), full, SHORT)
    wanted = 4 * 2 * 1000 + 1000 * 20 * 4 * 384 * 6 * 3  # logits; hidden, queries and keys of six pairs
    assert cached(everything, full, 2) == wanted
    assert cached(everything, Distill(precision="bf16"), 2) == 8000 + (wanted - 8000) / 2
    assert cached(everything, Distill(cache={"disk": 1_000_000}), 2) == 1_000_000
    assert cached(everything, Distill(cache=False), 2) == 0
    assert cached(workload(SHAPE, (SHAPE,), Distill(epochs=1), SHORT), Distill(epochs=1), 2) == 0
    during, left = disk(everything, full, 2)
    assert during - wanted > 8 * 4 * SHAPE.parameters
    assert left < 5 * SHAPE.parameters
    monkeypatch.setattr("compress.pipeline.forecast.training_cost.cuda_devices", lambda: ["one"])
    assert cached(everything, full, 2) == 8000
    assert cached(everything, Distill(precision="fp32", cache="2GiB"), 2) == wanted


def test_what_several_losses_look_at_is_counted_once(monkeypatch):
    monkeypatch.setattr("compress.pipeline.forecast.training_cost.cuda_devices", list)

    def kept(**losses):
        settings = Distill(losses=losses, precision="fp32")
        return cached(workload(SHAPE, (SHAPE,), settings, SHORT), settings, 1) // 4000

    part = 20 * 384
    assert kept(hidden_state=1.0) == 1 + 6 * part
    assert kept(hidden_state=1.0, similarity=1.0, contrast=1.0, embedding=1.0) == 1 + 7 * part
    assert kept(similarity=1.0, contrast=1.0) == 1 + part
    assert kept(relation={"pairs": ["vv"]}) == 1 + part
    assert kept(relation=1.0) == 1 + 3 * part
    assert kept(relation=1.0, attention=1.0) == 1 + 13 * part


def test_of_maps_only_a_few_are_held():
    def needed(length, **losses):
        settings = Distill(losses={"soft_label": 1.0, **losses}, precision="bf16", batch_size=32)
        return memory(workload(SHAPE, (SHAPE,), settings, Lengths(1000, np.full(9, length))), settings)

    more = [needed(length, attention=1.0) - needed(length) for length in (64, 128, 256)]
    assert more[2] - more[1] == pytest.approx(2 * (more[1] - more[0]), rel=1e-3)  # with pieces, not with their square


def test_a_pace_is_the_line_through_its_updates():
    pace = StepTimeFit()
    for work in (1.0, 2.0, 5.0):
        pace.add(work, 0.5 + 2 * work)
    assert pace.line() == pytest.approx((0.5, 2.0))
    assert pace.forecast(10, 100.0) == pytest.approx(205.0)


def test_a_pace_of_equal_updates_blames_the_work():
    pace = StepTimeFit()
    for _ in range(3):
        pace.add(4.0, 2.0)
    assert pace.line() == (0.0, 0.5)
    assert StepTimeFit().line() == (0.0, 0.0)
