"""Which files are models, and the ways in which they run."""

import shutil

import numpy as np
import pytest

from compress.errors import DeviceUnavailable, ModelError
from compress.model_folder.model_info import FolderInfo, VariantInfo, write_info
from compress.runtime import RUN_MODES, open_predictor
from compress.runtime.model_formats import FP32, describe_model_file
from compress.runtime.predictor import Placement
from compress.runtimes import RUNTIMES

EXPORTED = RUN_MODES["onnxruntime"].model_copy(update={"name": "onnx-fp32", "precision": "fp32"})


def test_bare_files_are_recognized(tmp_path, write_sum):
    bare = describe_model_file(write_sum(tmp_path / "any.onnx"))
    assert (bare.format, bare.file, bare.info) == ("onnx", tmp_path / "any.onnx", None)
    assert (bare.variant.name, bare.variant.runtime, bare.variant.precision) == ("onnx", "onnxruntime", "unknown")
    (tmp_path / "any.bin").touch()
    (tmp_path / "any.xml").write_text('<?xml version="1.0"?>\n<!-- written by a test -->\n<net name="any">')
    assert describe_model_file(tmp_path / "any.xml").variant.runtime == "openvino"


@pytest.mark.parametrize(
    ("names", "form"),
    [
        (["config.json"], "torch"),
        (["config.json", "model.onnx"], "onnx"),
        (["config.json", "onnx/model.onnx"], "onnx"),
        (["config.json", "openvino_model.xml", "openvino_model.bin"], "openvino"),
        (["openvino/openvino_model.xml", "openvino/openvino_model.bin"], "openvino"),
    ],
)
def test_folders_are_recognized_by_their_files(tmp_path, names, form):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    result = describe_model_file(tmp_path)
    assert result.format == form
    assert result.file == tmp_path / (names[-1] if form == "onnx" else names[-2] if form == "openvino" else names[0])


def test_compress_json_states_the_format(tmp_path, write_sum):
    write_sum(tmp_path / "model.onnx")
    (tmp_path / "openvino_model.xml").touch()
    (tmp_path / "openvino_model.bin").touch()
    own = RUN_MODES["openvino"].model_copy(update={"name": "openvino-fp32"})
    write_info(tmp_path, FolderInfo(step="export", made_by="tests", variant=own))
    result = describe_model_file(tmp_path)
    assert (result.format, result.variant.name) == ("openvino", "openvino-fp32")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("notes.txt", "notes.txt is not a model: no runtime reads files like it"),
        ("notes", "notes is not a model: no runtime reads files like it"),
        ("empty/", "is a folder without a model"),
        ("absent", "there is no model at"),
    ],
)
def test_error_for_a_path_without_model_names_expected_files(tmp_path, name, message):
    path = tmp_path / name
    if name.endswith("/"):
        path.mkdir()
    elif name != "absent":
        path.touch()
    with pytest.raises(ModelError, match=message) as raised:
        describe_model_file(path)
    assert ".onnx" in raised.value.hint
    assert ".xml" in raised.value.hint


def test_openvino_graph_without_its_weights_is_refused(tmp_path):
    (tmp_path / "graph.xml").write_text("<net>")
    with pytest.raises(ModelError, match=r"has its weights in graph\.bin, which is missing"):
        describe_model_file(tmp_path / "graph.xml")


def test_a_format_of_a_later_version_is_refused(tmp_path):
    variant = VariantInfo(name="coming-fp32", format="coming", precision="fp32", runtime="coming")
    write_info(tmp_path, FolderInfo(step="export", made_by="compress 9.0", variant=variant))
    with pytest.raises(
        ModelError, match="is in the format 'coming', which this version of compress does not"
    ) as raised:
        describe_model_file(tmp_path)
    assert raised.value.hint == "it was written by compress 9.0; upgrade compress-encoders"


def test_missing_graph_of_a_stated_format_is_refused(tmp_path):
    write_info(tmp_path, FolderInfo(step="export", made_by="tests", variant=EXPORTED))
    with pytest.raises(ModelError, match=r"has no model\.onnx"):
        describe_model_file(tmp_path)


def test_every_run_mode_has_a_runtime():
    for name, way in RUN_MODES.items():
        assert way.name == name
        assert way.format in RUNTIMES[way.runtime].formats


def test_every_runtime_has_an_opener():
    from pkgutil import resolve_name

    for runtime in RUNTIMES.values():
        assert runtime.needs
        assert callable(resolve_name(runtime.opener))


def test_a_format_runs_only_in_runtimes_that_read_it(tmp_path, write_sum, tiny_folder):
    with pytest.raises(ModelError, match="is in the format onnx; torch-compiled reads torch"):
        open_predictor(write_sum(tmp_path / "any.onnx"), variant=RUN_MODES["torch-compiled"])
    folder = tiny_folder("bert")
    with pytest.raises(ModelError, match="is in the format torch; openvino reads openvino and onnx") as raised:
        open_predictor(folder, variant=RUN_MODES["openvino"])
    assert raised.value.hint == f"compress export {folder} OUT --format openvino"
    with pytest.raises(DeviceUnavailable, match="openvino runs on cpu, not on cuda"):
        open_predictor(tmp_path / "any.onnx", Placement("cuda"), RUN_MODES["openvino"])
    with pytest.raises(DeviceUnavailable, match="onnxruntime-tensorrt runs on cuda, not on cpu"):
        open_predictor(tmp_path / "any.onnx", variant=RUN_MODES["onnx-tensorrt"])
    with pytest.raises(DeviceUnavailable, match="torch-graph runs on cuda, not on cpu"):
        open_predictor(tiny_folder("bert"), variant=RUN_MODES["torch-graph-bf16"])


def test_exported_folder_runs_in_another_runtime_but_not_as_another_variant(tmp_path, write_sum, arrays):
    write_sum(tmp_path / "model.onnx")
    write_info(tmp_path, FolderInfo(step="export", made_by="tests", variant=EXPORTED))
    in_openvino = open_predictor(tmp_path, variant=RUN_MODES["openvino"])
    assert (in_openvino.describe()["runtime"], in_openvino.describe()["precision"]) == ("openvino", "fp32")
    assert in_openvino.predict(arrays)["logits"] == 11
    assert open_predictor(tmp_path, variant=RUN_MODES["onnxruntime"]).describe()["precision"] == "fp32"
    with pytest.raises(ModelError, match="holds onnx-fp32 and cannot run as onnx-int8"):
        open_predictor(tmp_path, variant=EXPORTED.model_copy(update={"name": "onnx-int8"}))
    with pytest.raises(ModelError, match="is in the format onnx; torch reads torch"):
        open_predictor(tmp_path, variant=FP32)


def test_predictors_describe_the_same_fields(tmp_path, write_sum, tiny_folder):
    bare = write_sum(tmp_path / "any.onnx")
    for predictor in (
        open_predictor(bare),
        open_predictor(bare, variant=RUN_MODES["openvino"]),
        open_predictor(tiny_folder("bert")),
    ):
        facts = predictor.describe()
        assert {"runtime", "version", "device", "device_name", "threads", "precision"} <= set(facts)
        assert {"session", "instructions", "options", "uses"} <= set(facts)
        assert facts["threads"] == 1
        assert facts["device_name"]


def test_predictors_are_thread_safe(tmp_path, write_sum, tiny_folder):
    from concurrent.futures import ThreadPoolExecutor

    bare = write_sum(tmp_path / "any.onnx")
    for predictor in (
        open_predictor(bare),
        open_predictor(bare, variant=RUN_MODES["openvino"]),
        open_predictor(tiny_folder("bert")),
    ):
        batches = [
            {name: np.full((1, 3 + index % 5), index % 7 if name == "input_ids" else 1) for name in predictor.inputs}
            for index in range(64)
        ]
        alone = [predictor.predict(batch)["logits"] for batch in batches]
        with ThreadPoolExecutor(8) as callers:
            together = [answer["logits"] for answer in callers.map(predictor.predict, batches)]
        for expected, got in zip(alone, together, strict=True):
            np.testing.assert_array_equal(expected, got)


HUB_LAYOUT = ("config.json", "onnx/model.onnx", "openvino_model.xml", "openvino_model.bin")


@pytest.mark.parametrize(
    ("wanted", "form"),
    [((), "onnx"), (("torch",), "torch"), (("openvino", "onnx"), "openvino"), (("onnx", "openvino"), "onnx")],
)
def test_folder_with_several_formats_opens_as_the_wanted_one(tmp_path, wanted, form):
    for name in HUB_LAYOUT:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert describe_model_file(tmp_path, wanted).format == form


def test_wanted_format_does_not_override_compress_json(tmp_path, write_sum):
    write_sum(tmp_path / "model.onnx")
    (tmp_path / "config.json").touch()
    write_info(tmp_path, FolderInfo(step="export", made_by="tests", variant=EXPORTED))
    assert describe_model_file(tmp_path, ("torch",)).format == "onnx"


def test_folder_with_export_and_weights_runs_as_both(tiny_folder, tmp_path, write_sum, arrays):
    folder = tiny_folder("bert")
    both = tmp_path / "both"
    shutil.copytree(folder, both)
    (both / "compress.json").unlink(missing_ok=True)
    (both / "onnx").mkdir()
    write_sum(both / "onnx" / "model.onnx")
    assert open_predictor(both, variant=FP32).describe()["runtime"] == "torch"
    assert open_predictor(both).describe()["runtime"] == "onnxruntime"
    assert open_predictor(both, variant=RUN_MODES["openvino"]).describe()["runtime"] == "openvino"
