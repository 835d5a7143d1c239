"""Session options that were chosen by timing."""

import json

import pytest

from compress.errors import DeviceUnavailable, ModelError
from compress.export.tune_ort_session import CANDIDATES, tune_session
from compress.formats import FORMATS
from compress.model_folder.model_info import FolderInfo, VariantInfo, read_info, write_info
from compress.runtime import SESSION_FILE, TunedSession, open_predictor, tuned_options
from compress.storage.file_digests import digests
from tests.variant_builder import build


@pytest.fixture(scope="module")
def exported(tiny_folder, tmp_path_factory):
    work = tmp_path_factory.mktemp("exported")
    build("onnx-fp32", tiny_folder("bert"), work)
    return work


@pytest.fixture
def tuned(exported, tmp_path):
    """A folder with an export and options other than the default."""
    for name in digests(exported):
        (tmp_path / name).write_bytes((exported / name).read_bytes())
    session = tune_session(exported, tmp_path).model_copy(update={"options": CANDIDATES[1]})
    (tmp_path / SESSION_FILE).write_text(session.model_dump_json(), encoding="utf-8")
    return tmp_path


def change(folder, **values):
    """Edit session.json."""
    path = folder / SESSION_FILE
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **values}), encoding="utf-8")


def test_exports_state_no_machine(exported):
    assert read_info(exported).variant.session == {}
    assert SESSION_FILE not in digests(exported)


def test_tune_writes_options_and_processor(exported, tmp_path):
    session = tune_session(exported, tmp_path)
    assert session == TunedSession.model_validate_json((tmp_path / SESSION_FILE).read_bytes())
    assert session.options in CANDIDATES
    assert len(session.milliseconds) == len(CANDIDATES)
    assert session.processor


def test_tuned_options_apply_on_the_same_processor_only(tuned):
    assert open_predictor(tuned).describe()["session"] == CANDIDATES[1]
    change(tuned, processor="another processor")
    assert tuned_options(tuned) == {}
    assert open_predictor(tuned).describe()["session"] == {}


def test_options_of_the_requested_variant_are_added(exported):
    variant = read_info(exported).variant.model_copy(update={"session": CANDIDATES[1]})
    assert open_predictor(exported, variant=variant).describe()["session"] == CANDIDATES[1]


def test_unknown_option_and_newer_file_are_refused(tuned):
    change(tuned, options={"disabled_optimizer": []})
    with pytest.raises(ModelError, match="did you mean disabled_optimizers"):
        open_predictor(tuned)
    change(tuned, schema_version=2)
    with pytest.raises(ModelError, match="written by a newer version of compress"):
        open_predictor(tuned)


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ({"instructions": ("no_such_instructions",)}, "CPU instructions that this processor lacks: no_such"),
        ({"libraries": {"onnxruntime": "999.0"}}, "needs onnxruntime 999.0 or later"),
    ],
)
def test_unmet_requirements_of_a_variant_are_reported(exported, tmp_path, needs, message):
    for name in digests(exported):
        (tmp_path / name).write_bytes((exported / name).read_bytes())
    info = read_info(exported)
    write_info(tmp_path, info.model_copy(update={"variant": info.variant.model_copy(update=needs)}))
    with pytest.raises(DeviceUnavailable, match=message):
        open_predictor(tmp_path)


def test_variant_states_its_libraries_and_batch_sensitivity(exported):
    variant = read_info(exported).variant
    assert variant.libraries == FORMATS["onnx"].minimum
    assert variant.batch_sensitive is False


def test_folders_of_earlier_versions_still_open(exported, tmp_path):
    for name in digests(exported):
        (tmp_path / name).write_bytes((exported / name).read_bytes())
    own = VariantInfo(
        name="onnx-fp32", format="onnx", precision="fp32", runtime="onnxruntime", session=CANDIDATES[1]
    ).model_dump(exclude={"instructions", "libraries", "batch_sensitive"})
    info = FolderInfo(step="onnx-fp32", made_by="compress 0.1.0").model_dump(mode="json") | {"variant": own}
    (tmp_path / "compress.json").write_text(json.dumps(info), encoding="utf-8")
    assert read_info(tmp_path).variant.batch_sensitive is None
    assert open_predictor(tmp_path).describe()["session"] == CANDIDATES[1]
