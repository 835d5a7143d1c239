import subprocess
import sys

import pytest

from compress.errors import UsageError
from compress.runtime import RUNTIMES
from compress.variants import FORMATS, QUANTIZERS, VARIANTS, variant_named, variants_for


def names(*arguments):
    return [variant.name for variant in variants_for(*arguments)]


def test_the_table_is_consistent():
    for name, variant in VARIANTS.items():
        assert variant.name == name
        assert variant.runtime in RUNTIMES
        assert set(variant.default_on) <= set(variant.devices)
        assert (variant.build is None) == (variant.format == "torch")
        if variant.needs:
            assert list(VARIANTS).index(variant.needs) < list(VARIANTS).index(name)


def test_every_format_and_quantizer_makes_a_variant():
    built = {variant.build for variant in VARIANTS.values()}
    assert set(FORMATS.values()) <= built
    assert {build for builds in QUANTIZERS.values() for build in builds.values()} <= built


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS.values() if variant.build])
def test_every_builder_is_there(variant):
    from pkgutil import resolve_name

    assert callable(resolve_name(variant.build))


def test_what_competes():
    assert names(["onnx"], "int8", ["cpu"]) == ["torch-fp32", "onnx-fp32", "onnx-int8"]
    assert names(["onnx"], None, ["cpu"]) == ["torch-fp32", "onnx-fp32"]
    assert names([], None, ["cpu"]) == ["torch-fp32"]
    assert names(["onnx"], "int8", ["cpu", "cuda"]) == [
        "torch-fp32",
        "torch-bf16",
        "torch-fp16",
        "onnx-fp32",
        "onnx-int8",
    ]


def test_int8_needs_an_export_to_quantize():
    with pytest.raises(UsageError, match="add one of these to export: onnx"):
        variants_for([], "int8", ["cpu"])


def test_unknown_names_get_the_nearest():
    with pytest.raises(UsageError, match="did you mean onnx"):
        variants_for(["onx"], None, ["cpu"])
    with pytest.raises(UsageError, match="did you mean int8"):
        variants_for(["onnx"], "int", ["cpu"])
    with pytest.raises(UsageError, match="did you mean onnx-int8"):
        variant_named("onnx-int")


def test_a_model_folder_is_not_built(tmp_path):
    with pytest.raises(UsageError, match="as it is"):
        variant_named("torch-bf16").make(tmp_path, tmp_path)


def test_devices():
    assert variant_named("onnx-fp32").runs_on("cuda")
    assert not variant_named("onnx-int8").runs_on("cuda")
    assert variant_named("onnx-int8").batch_sensitive


def test_the_table_is_light():
    code = """
import sys
for name in ("torch", "transformers", "datasets", "onnx"):
    sys.modules[name] = None
import compress.variants
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
