"""What ExecuTorch and LiteRT exports of a tiny BERT have in common: they run alone, and every fault is one message."""

import functools
import shutil
import subprocess
import sys
from dataclasses import dataclass

import pytest

from compress.errors import MissingExtra, ModelError
from compress.formats import FORMATS
from compress.model_folder.model_info import read_info
from compress.runtime import open_predictor
from compress.runtime.text_model import TextModel
from tests.edge_exports import largest_difference, needs_runtime, padded_batch
from tests.variant_builder import build


@dataclass(frozen=True)
class Edge:
    """One format, and where its messages and its libraries differ from those of the other."""

    name: str
    title: str
    options: dict
    """What its predictor describes."""
    too_long: str
    """The message for a row of 40 tokens."""
    traced_by: str
    """The function of its builder that a model which cannot be converted stops."""
    module: str
    """A module that building imports."""
    kept_out: tuple[str, ...]
    """Modules that running does without."""

    @property
    def file(self):
        return FORMATS[self.name].files[0]


EDGES = (
    Edge(
        name="executorch",
        title="ExecuTorch",
        options={"longest": 32},
        too_long="a row has 40 tokens; this file reads up to 32",
        traced_by="trace",
        module="executorch.backends.xnnpack.partition.xnnpack_partitioner",
        kept_out=("transformers", "torchao", "datasets", "onnx", "executorch.exir"),
    ),
    Edge(
        name="litert",
        title="LiteRT",
        options={"lengths": [16, 32]},
        too_long="a row has 40 tokens; this file has the lengths 16, 32",
        traced_by="lengths",
        module="litert_torch",
        kept_out=("torch", "transformers", "litert_torch", "datasets", "onnx", "jax"),
    ),
)


@pytest.fixture(params=EDGES, ids=lambda edge: edge.name)
def edge(request):
    """Each format whose libraries are installed."""
    needs_runtime(f"{request.param.name}-fp32")
    return request.param


@pytest.fixture(scope="module")
def export_once(tiny_folder, tmp_path_factory):
    """Makes a BERT folder and its export in a format, once."""

    @functools.cache
    def make(form):
        source, work = tiny_folder("bert"), tmp_path_factory.mktemp(form)
        build(f"{form}-fp32", source, work)
        return source, work

    return make


@pytest.fixture
def exported(edge, export_once):
    return export_once(edge.name)


def test_the_folder_describes_itself_and_predicts_by_itself(edge, exported):
    source, work = exported
    info = read_info(work)
    assert (info.variant.name, info.variant.format, info.task) == (
        f"{edge.name}-fp32",
        edge.name,
        read_info(source).task,
    )
    assert info.variant.parity["max_abs_difference"] < 1e-4
    assert info.variant.parity["alone_or_in_batch"] == 0
    assert largest_difference(work, source) < 1e-5
    assert len(TextModel.open(work).predict(["a good film", "bad"])) == 2


def test_a_bare_file_names_its_inputs(edge, exported, tmp_path):
    bare = shutil.copy(exported[1] / edge.file, (tmp_path / "other").with_suffix(FORMATS[edge.name].suffix))
    predictor = open_predictor(bare)
    assert sorted(predictor.inputs) == ["attention_mask", "input_ids", "token_type_ids"]
    assert predictor.describe()["options"] == edge.options


def test_a_row_that_is_too_long_is_reported(edge, exported):
    with pytest.raises(ModelError, match=edge.too_long):
        open_predictor(exported[1]).predict(padded_batch(length=40))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:5000],
        lambda _: b"not a model" * 100,
        lambda _: bytes(range(128, 256)) * 9,
        lambda _: b"",
    ],
    ids=["truncated", "text", "no text", "empty"],
)
def test_a_corrupt_file_is_reported(damage, edge, exported, tmp_path, capfd):
    shutil.copytree(exported[1], tmp_path, dirs_exist_ok=True)
    (tmp_path / edge.file).write_bytes(damage((exported[1] / edge.file).read_bytes()))
    with pytest.raises(ModelError, match=rf"{edge.title} cannot read .*: it is empty, truncated, or not a model"):
        open_predictor(tmp_path)
    assert "".join(capfd.readouterr()) == ""


def test_running_imports_no_more_than_the_runtime(edge, exported):
    code = f"""
import sys
for name in {edge.kept_out!r}:
    sys.modules[name] = None
import compress
print(compress.open({str(exported[1])!r}).predict(["a good film"])[0]["label"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() in ("bad", "good")


def test_outputs_that_differ_are_an_error(edge, exported, tmp_path, monkeypatch):
    monkeypatch.setattr("compress.export.from_pytorch.TOLERANCE", 0.0)
    with pytest.raises(ModelError, match="differ from those of its source"):
        build(f"{edge.name}-fp32", exported[0], tmp_path)


def test_a_model_that_cannot_be_converted_is_reported(edge, exported, tmp_path, monkeypatch):
    def refuse(*_):
        raise RuntimeError("data-dependent control flow")

    monkeypatch.setattr(f"compress.export.builders.{edge.name}.{edge.traced_by}", refuse)
    with pytest.raises(ModelError, match=f"{edge.title} cannot convert a bert model like this: data-dependent"):
        build(f"{edge.name}-fp32", exported[0], tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_the_library_the_extra_is_named(edge, exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, edge.module, None)
    with pytest.raises(MissingExtra, match=f"{edge.module.partition('.')[0]} is needed") as raised:
        build(f"{edge.name}-fp32", exported[0], tmp_path)
    assert f"compress-encoders[{edge.name}]" in raised.value.hint
