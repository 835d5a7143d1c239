"""The oldest runtime of each ONNX file, from the table, against what was measured and what the builders write."""

import subprocess
import sys

import onnx
import pytest

from compress.export.write_variant import operators
from compress.model_folder.model_info import read_info
from compress.runtimes import EVERYWHERE, OLDEST, check_runs_in, least_release, why_not_in, why_not_in_all
from compress.variants import VARIANTS
from tests.conftest import TINY
from tests.quantize.sample_rows import sample_batches
from tests.variant_builder import build

PLAIN = ("opset 20", "Gelu", "MatMul")
FOUR_BITS = (*PLAIN, "com.microsoft.GatherBlockQuantized")
UNKNOWN = (*PLAIN, "com.microsoft.MadeUp")
ONNX_METHODS = [
    name
    for name, each in VARIANTS.items()
    if each.format in ("onnx", "ort")
    and each.runtime == "onnxruntime"
    and each.builder
    and each.method != "neural-compressor"
]
LARGE = 1200
"""Word pieces from which a table of word vectors is worth 4 bits."""


@pytest.mark.parametrize(
    ("used", "ir", "expected"),
    [
        (PLAIN, 10, "1.19"),
        (("opset 22",), 10, "1.21"),
        (("opset 20",), 11, "1.23"),
        (FOUR_BITS, 10, "1.23"),
        (UNKNOWN, 10, "1.31.1"),
        (("opset 99",), 10, "1.31.1"),
    ],
)
def test_the_oldest_release_follows_from_opset_ir_and_operators(used, ir, expected):
    assert least_release(used, ir, installed="1.31.1") == expected


@pytest.mark.parametrize(
    ("name", "form", "used", "reason"),
    [
        ("web", "onnx", PLAIN, None),
        ("web", "onnx", FOUR_BITS, "web has no com.microsoft.GatherBlockQuantized"),
        ("web", "ort", PLAIN, "web reads no ort"),
        ("onnxruntime-1.20", "onnx", PLAIN, None),
        ("onnxruntime-1.20", "ort", PLAIN, None),
        ("onnxruntime-1.22", "onnx", FOUR_BITS, "onnxruntime-1.22 is too old: it needs ONNX Runtime 1.23"),
        ("onnxruntime-1.23", "onnx", FOUR_BITS, None),
        ("onnxruntime-1.18", "onnx", PLAIN, "onnxruntime-1.18 is too old: it needs ONNX Runtime 1.19"),
        ("onnxruntime-1.20", "openvino", (), "onnxruntime-1.20 reads no openvino"),
    ],
)
def test_where_a_file_runs(name, form, used, reason):
    assert why_not_in(name, form, used) == reason


@pytest.mark.parametrize("name", ["wep", "onnxruntime", "onnxruntime-1.x", "onnxruntime-1.20.1"])
def test_an_unknown_runtime_is_refused_with_the_list(name):
    with pytest.raises(ValueError, match=r"no runtime is called .* \(known: onnxruntime-1.19, .*web\); any release"):
        check_runs_in(name)


@pytest.fixture(scope="module")
def built(tiny_model, tiny_folder, tmp_path_factory):
    """Makes the folder of a variant of a family with a large vocabulary, once."""
    made = {}

    def make(family, name):
        if (family, name) not in made:
            source = (
                tiny_folder(tiny_model(family, vocab_size=LARGE))
                if name is None
                else make(family, VARIANTS[name].needs)
            )
            if name is not None:
                build(name, source, folder := tmp_path_factory.mktemp(name), calibration=sample_batches)
            made[family, name] = source if name is None else folder
        return made[family, name]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("name", ONNX_METHODS)
def test_the_table_of_variants_states_what_files_need(name, built):
    stated = read_info(built("bert", name)).variant
    assert stated.libraries == VARIANTS[name].libraries
    known = set(VARIANTS[name].operators)
    assert known <= set(stated.operators)
    assert (why_not_in("web", stated.format, stated.operators) is None) == (not known and stated.format == "onnx")


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(TINY))
def test_plain_and_int8_files_of_every_family_run_everywhere(family, built):
    for name in ("onnx-fp32", "onnx-int8"):
        variant = read_info(built(family, name)).variant
        assert why_not_in_all(EVERYWHERE, variant.format, variant.operators) is None
        assert variant.libraries["onnxruntime"] == OLDEST


def test_operators_are_those_of_the_file(tmp_path):
    node = onnx.helper.make_node("GatherBlockQuantized", ["a"], ["b"], domain="com.microsoft")
    graph = onnx.helper.make_graph([node, onnx.helper.make_node("Relu", ["b"], ["c"])], "g", [], [])
    domains = [onnx.helper.make_opsetid("com.microsoft", 1), onnx.helper.make_opsetid("", 20)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=domains, ir_version=10), tmp_path / "model.onnx")
    assert operators(tmp_path / "model.onnx") == (("opset 20", "Relu", "com.microsoft.GatherBlockQuantized"), 10)


@pytest.mark.slow
@pytest.mark.parametrize(("release", "opens_4bit"), [("1.20.1", False), ("1.22.1", False), ("1.23.2", True)])
def test_files_open_in_the_releases_that_the_table_names(release, opens_4bit, built, tmp_path):
    """The wheels of old releases are downloaded; skipped where they cannot be."""
    wheel = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(tmp_path),
        f"onnxruntime=={release}",
    ]
    if subprocess.run(wheel, capture_output=True, check=False, timeout=600).returncode != 0:
        pytest.skip(f"onnxruntime {release} cannot be installed for this Python")
    for name, opens in (("onnx-fp32", True), ("onnx-int8", True), ("onnx-int8-embeddings-4bit", opens_4bit)):
        graph = str(built("bert", name) / "model.onnx")
        script = f"import onnxruntime as ort; ort.InferenceSession({graph!r}); print(ort.__version__)"
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (done.stdout.strip() == release) == opens, done.stderr
