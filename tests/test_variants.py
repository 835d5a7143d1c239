"""Formats that the only model of a recipe, a teacher with a BiLSTM, cannot have."""

import subprocess
import sys

import pytest

from compress import variants
from compress.errors import UsageError
from compress.formats import EXPORTS
from compress.pipeline.preflight.recipe_checks import NAMES
from compress.recipe.load import parse_recipe
from compress.runtime import RUN_MODES
from compress.runtimes import RUNTIMES
from compress.variants import QUANTIZERS, VARIANTS, format_problems, left_out_formats, listed_formats, variants_for


def names(*arguments):
    return [variant.name for variant in variants_for(*arguments)]


def test_the_table_is_consistent():
    for name, variant in VARIANTS.items():
        assert variant.name == name
        assert variant.runtime in RUNTIMES
        assert set(variant.devices) <= set(RUNTIMES[variant.runtime].devices)
        assert variant.format in RUNTIMES[variant.runtime].formats
        assert set(variant.default_on) <= set(variant.devices)
        assert (variant.builder is None) == (variant.format == "torch")
        assert (variant.info == RUN_MODES.get(name)) == (name in RUN_MODES)
        if variant.needs:
            assert list(VARIANTS).index(variant.needs) < list(VARIANTS).index(name)


def test_every_format_and_quantizer_makes_a_variant():
    built = {variant.builder for variant in VARIANTS.values()}
    assert {each.builder for each in EXPORTS.values()} <= built
    assert {each.builder for each in QUANTIZERS.values()} <= built


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS.values() if variant.builder])
def test_every_builder_can_be_imported(variant):
    from pkgutil import resolve_name

    assert callable(resolve_name(variant.builder))


def test_what_competes():
    assert names(["onnx"], ["dynamic"], ["cpu"]) == ["torch-fp32", "onnx-fp32", "onnx-int8"]
    assert names(["onnx"], [], ["cpu"]) == ["torch-fp32", "onnx-fp32"]
    assert names([], [], ["cpu"]) == ["torch-fp32"]
    assert names(["onnx"], ["dynamic"], ["cpu", "cuda"]) == [
        "torch-fp32",
        "torch-bf16",
        "torch-fp16",
        "torch-compiled-bf16",
        "torch-compiled-fp16",
        "torch-graph-bf16",
        "torch-graph-fp16",
        "onnx-fp32",
        "onnx-int8",
    ]


def test_openvino_includes_its_source():
    assert names(["openvino"], [], ["cpu"]) == ["torch-fp32", "onnx-fp32", "openvino-fp32"]
    assert names(["openvino"], [], []) == ["onnx-fp32", "openvino-fp32"]


def test_variants_by_name_are_added():
    assert names([], [], ["cpu"], ["torch-compiled"]) == ["torch-fp32", "torch-compiled"]
    assert names([], [], ["cpu"], ["torch-fp32"]) == ["torch-fp32"]
    requested = names([], [], ["cuda"], ["onnx-tensorrt"])
    assert requested[-2:] == ["onnx-fp32", "onnx-tensorrt"]
    assert "onnx-tensorrt" not in names(["onnx"], [], ["cuda"])
    with pytest.raises(UsageError, match="torch-graph-bf16 runs on cuda; the targets run on cpu"):
        names([], [], ["cpu"], ["torch-graph-bf16"])


def test_int8_needs_an_export_to_quantize():
    with pytest.raises(UsageError, match="dynamic makes onnx files; add onnx to export"):
        variants_for([], ["dynamic"], ["cpu"])


def test_unknown_names_get_the_nearest():
    with pytest.raises(UsageError, match=r"did you mean onnx\?"):
        variants_for(["onx"], [], ["cpu"])
    with pytest.raises(UsageError, match="did you mean dynamic"):
        variants_for(["onnx"], ["dynamc"], ["cpu"])


def test_devices():
    assert "cuda" in VARIANTS["onnx-fp32"].devices
    assert "cuda" not in VARIANTS["onnx-int8"].devices
    assert VARIANTS["onnx-int8"].batch_sensitive


def test_the_table_is_light():
    code = """
import sys
for name in ("torch", "transformers", "datasets", "onnx", "openvino"):
    sys.modules[name] = None
import compress.variants
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


TAGS = "task: {kind: token_classification, data: {train: a.conll, test: b.conll}}\nteacher: any\n"
BILSTM = "finetune: {features: last4, head: bilstm}\n"


@pytest.fixture
def all_installed(monkeypatch):
    monkeypatch.setattr(variants, "missing_extras", lambda form: {})
    monkeypatch.setattr(variants, "missing_programs", lambda form: [])


def recipe(rest):
    return parse_recipe(f"{TAGS}{BILSTM}{rest}", "films", (), NAMES)


def test_a_format_without_lstm_is_refused(all_installed):
    (problem,) = format_problems(recipe("export: [onnx, litert, executorch]"))
    assert problem.path == ("export", 2)
    assert problem.message.startswith("executorch has no LSTM, and the head of the model is a BiLSTM: add a student")


def test_a_student_may_have_any_format(all_installed):
    assert not list(format_problems(recipe("student: {layers: 2}\nexport: executorch")))


def test_all_leaves_it_out(all_installed):
    named = recipe("export: all")
    assert "executorch" not in {each.format for each in listed_formats(named)}
    reason = "executorch has no LSTM, and the head of the model is a BiLSTM"
    assert left_out_formats(named) == {"executorch": f"export: all leaves out executorch: {reason}"}
