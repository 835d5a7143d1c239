"""Checks of real exports of tiny models, and of exports with wrong outputs."""

import shutil

import onnx
import pytest

from compress.errors import ModelError, ParityMissed
from compress.export.comparison.golden_inputs import GOLDEN_TEXTS, LONG, read_golden
from compress.export.comparison.parity import Parity, compare_stored
from compress.export.comparison.parity_check import LIMITS, ParityCheck, check_golden, check_parity
from compress.model_folder.model_info import GOLDEN_FILE, read_info, write_info
from compress.runtime import open_predictor
from compress.storage.file_digests import digests
from tests.variant_builder import add_to_logits, build


@pytest.fixture(scope="module")
def folders(tiny_folder, tiny_model, tmp_path_factory):
    """A BERT folder, its ONNX export and its INT8 variant."""
    source, work = tiny_folder(tiny_model("bert", initializer_range=0.1)), tmp_path_factory.mktemp("exports")
    for name, origin in (("onnx-fp32", source), ("onnx-int8", work / "onnx-fp32")):
        (work / name).mkdir()
        build(name, origin, work / name)
    return source, work / "onnx-fp32", work / "onnx-int8"


@pytest.fixture
def wrong(folders, tmp_path):
    """Makes a copy of the fp32 export with a number added to its logits."""

    def make(difference, precision="fp32"):
        folder = shutil.copytree(folders[1], tmp_path / "wrong")
        onnx.save(add_to_logits(onnx.load(folder / "model.onnx"), difference), folder / "model.onnx")
        info = read_info(folder)
        write_info(
            folder, info.model_copy(update={"variant": info.variant.model_copy(update={"precision": precision})})
        )
        return folder

    return make


@pytest.mark.parametrize("index", [1, 2])
def test_an_export_repeats_its_model_and_is_left_as_it_was(folders, index):
    source, folder = folders[0], folders[index]
    before = digests(folder)
    check = check_parity(source, folder)
    assert check.misses == []
    check.raise_for_misses(folder)
    assert set(check.groups) == {*GOLDEN_TEXTS, LONG}
    assert check.total.rows == sum(parity.rows for parity in check.groups.values())
    assert digests(folder) == before


def test_a_model_folder_in_another_precision_is_an_export_too(folders, tmp_path):
    """Winners may be model folders, of which compress.json says how they run."""
    source = folders[0]
    folder = shutil.copytree(source, tmp_path / "winner")
    variant = {"name": "torch-bf16", "format": "torch", "precision": "bf16", "runtime": "torch"}
    info = read_info(folder)
    write_info(folder, type(info).model_validate({**info.model_dump(), "variant": variant}))
    check = check_parity(source, folder)
    assert check.total.max_abs_difference > 0
    assert check.misses == []


@pytest.mark.parametrize("difference", [0.01, float("nan")])
def test_rounding_does_not_explain_it(folders, wrong, difference):
    folder = wrong(difference)
    check = check_parity(folders[0], folder)
    assert check.misses[0].startswith("outputs differ by up to ")
    with pytest.raises(ParityMissed, match="wrong \\(onnx-fp32\\) does not repeat PyTorch") as caught:
        check.raise_for_misses(folder)
    assert caught.value.exit_code == 3


def test_changed_decisions_are_a_miss_in_any_precision(folders, wrong):
    check = check_parity(folders[0], wrong([50.0, -50.0], "int8"))
    assert any("of the decisions are equal; expected" in miss for miss in check.misses)


def test_limits_are_shares_of_the_largest_output(folders):
    variant = read_info(folders[1]).variant

    def missed(precision, difference, largest, agreement=None):
        parity = Parity(difference, agreement, 0.0, 10, largest, 0 if agreement is None else 10)
        return ParityCheck(variant, LIMITS[precision], {"short": parity}).misses

    share = LIMITS["int8"].difference
    assert not missed("int8", 0.9 * share * 0.1, 0.1)  # an embedding: no coordinate is above 0.1
    assert missed("int8", 1.1 * share * 0.1, 0.1)
    assert not missed("fp32", 9e-5, 0.1)
    assert missed("fp32", 1.1e-4, 0.1)
    assert missed("fp32", 0.0, 1.0, agreement=0.99)


@pytest.mark.parametrize("index", [1, 2])
def test_with_and_without_pytorch_the_same_rows_give_the_same_figures(folders, index):
    live, stored = check_parity(folders[0], folders[index]), check_golden(folders[index])
    assert stored.misses == live.misses
    assert stored.groups.keys() == live.groups.keys()
    for name, parity in live.groups.items():
        assert stored.groups[name].rows == parity.rows
        assert stored.groups[name].agreement == parity.agreement
        assert stored.groups[name].max_abs_difference == pytest.approx(parity.max_abs_difference, abs=1e-5)


def test_an_export_of_an_earlier_version_is_checked_on_the_same_rows(folders, tmp_path):
    folder = shutil.copytree(folders[2], tmp_path / "old")
    (folder / GOLDEN_FILE).unlink()
    assert check_parity(folders[0], folder).total == check_parity(folders[0], folders[2]).total


def test_rows_alone_count_too(folders, wrong):
    """A file that is wrong for a single row only, where batches of any other size are right."""
    folder = wrong(0.0)
    golden = read_golden(folder)

    class WrongAlone:
        def __init__(self, predictor):
            self.predictor, self.inputs = predictor, predictor.inputs

        def predict(self, arrays):
            shift = 5.0 if len(arrays["input_ids"]) == 1 else 0.0
            return {name: values + shift for name, values in self.predictor.predict(arrays).items()}

    batch, task = golden["sentences"], read_info(folder).task
    right, broken = open_predictor(folder), WrongAlone(open_predictor(folder))
    assert compare_stored(batch.inputs, batch.outputs, right, task).max_abs_difference < 1e-4
    assert compare_stored(batch.inputs, batch.outputs, broken, task).max_abs_difference > 4.9


def test_a_precision_without_a_limit_is_reported(folders, wrong):
    with pytest.raises(ModelError, match="the precision 'int2', which has no limit"):
        check_parity(folders[0], wrong(0.0, "int2"))
