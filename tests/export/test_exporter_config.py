"""Our exporters in optimum's table, and where our families and heads agree with its own tables."""

import random
import subprocess
import sys

import pytest
import torch

pytest.importorskip("optimum", reason="optimum is not installed")

from optimum.exporters.tasks import TasksManager
from optimum.utils import NormalizedConfigManager, NormalizedTextConfig

import compress.export.build_context as variant_record
from compress.errors import MissingExtra
from compress.export.from_pytorch import TASKS, config_names, example_inputs, exporter_config, register_exporters
from compress.families import FAMILIES
from compress.formats import EXPORTS
from compress.models.heads import HEADS
from compress.prune.surgery import remove_units
from compress.tasks import KINDS
from tests.conftest import TINY
from tests.variant_builder import build


def test_optimum_knows_every_family_task_and_format_that_is_made_from_pytorch():
    register_exporters()
    for form in (name for name, each in EXPORTS.items() if each.source is None):
        for family in FAMILIES:
            known = TasksManager.get_supported_tasks_for_model_type(family, form, library_name="transformers")
            assert set(known) == set(TASKS.values())
    assert {kind.head for kind in KINDS.values()} < set(TASKS) == set(HEADS)


@pytest.mark.parametrize("head", sorted(set(HEADS) - {"sentence-embedding"}))
def test_a_task_has_the_class_of_the_head(head):
    assert TasksManager.get_model_class_for_task(TASKS[head]) is HEADS[head].auto
    assert TasksManager.map_from_synonym(head) in (TASKS[head], "encoder")


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_a_familys_config_keys_are_those_that_optimum_knows(family, tiny_model):
    config = tiny_model(family.name).config
    names = config_names(family)(config)
    for ours, theirs in {
        "hidden_key": "hidden_size",
        "layers_key": "num_layers",
        "heads_key": "num_attention_heads",
    }.items():
        stored = config.to_dict()[getattr(family, ours)]
        assert stored == getattr(names, theirs)
    assert names.vocab_size == config.vocab_size


def test_what_optimum_does_not_know_stays_in_our_table():
    with pytest.raises(KeyError):
        NormalizedConfigManager.get_normalized_config_class("mobilebert")
    assert not hasattr(NormalizedTextConfig, "INTERMEDIATE_SIZE")  # the width of the FFN


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", TINY)
def test_a_model_runs_on_its_sample_inputs(family, head, tiny_model):
    model = tiny_model(family, head=HEADS[head].suffix)
    config, sample = exporter_config(model), example_inputs(model)
    assert tuple(config.inputs) == tuple(sample) == FAMILIES[family].inputs
    assert all(values.shape == (2, 7) for values in sample.values())
    assert {0, 1} == set(sample["attention_mask"].flatten().tolist())
    with torch.no_grad():
        names = [name for name, value in model(**sample).items() if isinstance(value, torch.Tensor)]
    assert names[: len(config.outputs)] == config.outputs == list(HEADS[head].outputs)


@pytest.mark.parametrize("family", TINY)
def test_what_reads_a_config_is_not_bound_to_the_exporter(family, tiny_model):
    names = vars(type(exporter_config(tiny_model(family))))["NORMALIZED_CONFIG_CLASS"]
    assert isinstance(names, staticmethod)  # Python 3.13 warns of a bare partial, later ones bind it


def test_a_pruned_model_has_the_exporter_of_its_family(tiny_model):
    pruned = remove_units(tiny_model("bert"), [[0], [1, 2]], [list(range(8)), list(range(16))])
    assert exporter_config(pruned).family is FAMILIES["bert"]


def test_sample_inputs_are_the_same_each_time_and_leave_the_generators_alone(tiny_model):
    model = tiny_model("bert", type_vocab_size=1)
    state, theirs = torch.random.get_rng_state(), random.getstate()
    first, second = example_inputs(model), example_inputs(model)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert first["token_type_ids"].max() == 0
    assert torch.equal(state, torch.random.get_rng_state())
    assert theirs == random.getstate()


@pytest.mark.parametrize(
    "variant", ["onnx-fp32", "executorch-fp32", "executorch-int8", "litert-fp32", "onnx-int8-neural-compressor"]
)
def test_an_export_without_optimum_names_the_extra(variant, tmp_path, monkeypatch):
    monkeypatch.setattr(variant_record, "find_spec", lambda name: None if name == "optimum" else "found")
    with pytest.raises(MissingExtra, match="optimum is needed here") as caught:
        build(variant, tmp_path, tmp_path)
    assert caught.value.hint == "pip install 'compress-encoders[train]'"


@pytest.mark.slow
def test_importing_it_writes_nothing_to_the_error_stream():
    done = subprocess.run(
        [sys.executable, "-c", "import compress.export.from_pytorch"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
