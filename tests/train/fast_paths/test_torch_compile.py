import pytest
import torch

from compress.console import Console
from compress.families import FAMILIES
from compress.models.encoder_parts import capture_parts, layers_of
from compress.recipe.training_schema import Training
from compress.train.fast_paths.torch_compile import compilable_parts, compile_layers, eager_only
from compress.train.loop import train
from compress.train.objective import TaskObjective

IDS = torch.tensor([[2, 5, 6, 3]])
SETTINGS = {"epochs": 1, "batch_size": 8, "learning_rate": 5e-5, "compile": True}


@pytest.mark.parametrize("name", FAMILIES)
def test_compiled_parts_contain_no_observed_module(name, tiny_model):
    model = tiny_model(name)
    parts = compilable_parts(model)
    family = FAMILIES[name]
    assert parts or name == "albert"  # whose layers hold their products themselves
    for layer in layers_of(model):
        for path in filter(None, (family.query, family.key, family.value, family.query_key_value)):
            observed = layer.get_submodule(path)
            assert not any(observed is inner for part in parts for inner in part.modules())


def test_parts_are_compiled_for_a_while_and_hooks_still_see(tiny_model, monkeypatch):
    """With a stand-in for the compiler: what is compile_layers, and when it runs."""
    ran = []
    plain = torch.nn.Module._call_impl

    def compile_part(part, **options):
        part._compiled_call_impl = lambda *args: ran.append(part) or plain(part, *args)

    monkeypatch.setattr(torch.nn.Module, "compile", compile_part)
    model = tiny_model("bert")
    expected = model(input_ids=IDS).logits
    with compile_layers([model]), capture_parts(model, {0: {"query", "hidden"}, 1: {"query", "hidden"}}) as seen:
        assert torch.equal(model(input_ids=IDS).logits, expected)
    assert len(ran) == 3 * len(layers_of(model))
    assert all(set(parts) == {"query", "hidden"} for parts in seen.values())
    model(input_ids=IDS)
    assert len(ran) == 3 * len(layers_of(model))


def test_compiler_is_not_loaded_without_compile(monkeypatch):
    monkeypatch.setattr(torch.compiler, "set_stance", None)
    with eager_only(False):
        pass


def test_compile_is_ignored_on_cpu_with_a_note(tiny_model, material, tmp_path, capsys):
    notes = []
    console = Console("quiet")
    console.note = notes.append
    objective = TaskObjective(material.task)
    train(tiny_model("bert"), objective, material.train, Training(**SETTINGS), seed=0, work=tmp_path, console=console)
    assert any("torch.compile ignored" in text for text in notes)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_a_gpu_trains_compiled(tiny_model, material, tmp_path):
    settings = Training(**SETTINGS, precision="bf16", evaluations=2)
    result = train(
        tiny_model("bert"),
        TaskObjective(material.task),
        material.train,
        settings,
        seed=0,
        work=tmp_path,
        evaluate=material.evaluate,
    )
    assert result.score is not None
