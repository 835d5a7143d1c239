import json
from types import SimpleNamespace

import pytest
import torch

from compress.train import precision as module
from compress.train.precision import FOLDER, always_tried, choose_precision, is_always_tried, product_gain

CPU = torch.device("cpu")
FAST = SimpleNamespace(model="a CPU", instructions=("avx512_bf16",), has_bf16=True)


class FakeTrial:
    """A trial with a given gain, that counts how often it was made."""

    def __init__(self, gain, updates=6, shape="6x384"):
        self.given, self.count, self.shape, self.runs = gain, updates, shape, 0

    def key(self):
        return {"shape": self.shape}

    def updates(self):
        return self.count

    def gain(self, updates):
        self.runs += 1
        return self.given


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "describe_cpu", lambda: FAST)
    return tmp_path / "cache" / FOLDER


def products(monkeypatch, gain):
    monkeypatch.setattr(module, "product_gain", lambda: gain)


@pytest.mark.parametrize(("gain", "expected"), [(1.9, "bf16"), (1.2, "bf16"), (1.19, "fp32"), (0.6, "fp32")])
def test_auto_is_bf16_where_updates_are_faster_by_a_margin(gain, expected):
    choice = choose_precision("auto", CPU, FakeTrial(gain))
    assert choice.precision == expected
    assert choice.reason == f"updates {gain:.2f} times as fast in bf16, 6 of each precision tried"


def test_a_precision_of_the_recipe_is_not_tried():
    trial = FakeTrial(0.5)
    choice = choose_precision("bf16", CPU, trial)
    assert (choice.precision, choice.reason, trial.runs) == ("bf16", None, 0)


@pytest.mark.parametrize(
    ("has_bf16", "reason"),
    [(False, "this CPU has no bf16 instructions"), (None, "the instructions of this CPU are unknown")],
)
def test_without_instructions_nothing_is_tried(has_bf16, reason, monkeypatch, cache):
    monkeypatch.setattr(module, "describe_cpu", lambda: SimpleNamespace(has_bf16=has_bf16))
    trial = FakeTrial(9.0)
    choice = choose_precision("auto", CPU, trial)
    assert (choice.precision, choice.reason, trial.runs) == ("fp32", reason, 0)
    assert not cache.exists()


@pytest.mark.parametrize(("supported", "precision"), [(True, "bf16"), (False, "fp32")])
def test_a_gpu_is_not_tried(supported, precision, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    choice = choose_precision("auto", torch.device("cuda"), FakeTrial(0.1))
    assert choice.precision == precision
    assert choice.reason == f"this GPU has {'' if supported else 'no '}bf16 instructions"


def test_another_timing_does_not_change_a_kept_choice():
    first, second = FakeTrial(1.8), FakeTrial(0.7)
    assert choose_precision("auto", CPU, first) == choose_precision("auto", CPU, second)
    assert choose_precision("auto", CPU, second).precision == "bf16"
    assert (first.runs, second.runs) == (1, 0)


def test_the_first_of_two_processes_decides():
    class Slower(FakeTrial):
        def gain(self, updates):
            choose_precision("auto", CPU, FakeTrial(1.8))
            return super().gain(updates)

    assert choose_precision("auto", CPU, Slower(0.7)).precision == "bf16"


def test_another_shape_or_number_of_threads_is_tried_again():
    choose_precision("auto", CPU, FakeTrial(1.8))
    other, threads = FakeTrial(0.7, shape="3x384"), FakeTrial(0.7)
    assert choose_precision("auto", CPU, other).precision == "fp32"
    torch.set_num_threads(2)
    assert choose_precision("auto", CPU, threads).precision == "fp32"
    assert (other.runs, threads.runs) == (1, 1)


def test_a_short_training_follows_products_whose_choice_is_kept(monkeypatch):
    products(monkeypatch, 1.5)
    choice = choose_precision("auto", CPU, FakeTrial(0.1, updates=0))
    assert (choice.precision, choice.reason) == (
        "bf16",
        "too few updates to try both, products 1.50 times as fast in bf16",
    )
    products(monkeypatch, 0.5)
    assert choose_precision("auto", CPU, FakeTrial(0.1, updates=0, shape="another")) == choice
    assert choose_precision("auto", CPU, None) == choice


def test_a_short_training_follows_the_trial_of_a_longer_one(monkeypatch):
    products(monkeypatch, 0.5)
    longer = choose_precision("auto", CPU, FakeTrial(1.8))
    assert choose_precision("auto", CPU, FakeTrial(1.8, updates=0)) == longer


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema_version": 1}', '{"precision": "fp8"}', "\x00"])
def test_a_damaged_file_is_replaced(damage, cache):
    choose_precision("auto", CPU, FakeTrial(1.8))
    (file,) = cache.iterdir()
    file.write_text(damage)
    assert choose_precision("auto", CPU, FakeTrial(0.7)).precision == "fp32"
    stored = json.loads(file.read_text())
    assert (stored["precision"], stored["key"]["cpu"], stored["key"]["shape"]) == ("fp32", "a CPU", "6x384")


def test_a_cache_folder_that_cannot_be_written_is_no_error(cache):
    cache.parent.write_text("a file where the folder should be")
    assert choose_precision("auto", CPU, FakeTrial(1.8)).precision == "bf16"


def test_trainings_are_always_tried_within_a_block_alone():
    with always_tried():
        assert is_always_tried()
    assert not is_always_tried()


def test_the_gain_of_products_is_a_ratio_of_times():
    assert 0.01 < product_gain() < 100
