"""INT8 ExecuTorch files made of tiny models."""

import sys

import pytest

from compress.errors import MissingExtra
from compress.model_folder.model_info import read_info
from compress.runtime.text_model import TextModel
from tests.edge_exports import largest_difference
from tests.variant_builder import build

pytest.importorskip("executorch", reason="executorch is not installed")
NAME = "executorch-int8"


@pytest.fixture(scope="module")
def source(tiny_folder):
    return tiny_folder("bert")


@pytest.fixture(scope="module")
def quantized(source, tmp_path_factory):
    work = tmp_path_factory.mktemp("int8")
    build(NAME, source, work)
    return work


def test_it_predicts_like_the_model(quantized, source):
    info = read_info(quantized)
    assert (info.variant.name, info.variant.method, info.variant.precision) == (NAME, "xnnpack", "int8")
    assert 0 < largest_difference(quantized, source) < 0.5
    assert info.variant.parity["alone_or_in_batch"] == 0
    assert len(TextModel.open(quantized).predict(["a good film", "bad"])) == 2


def test_embeddings_are_close_and_a_quarter_as_large():
    torch = pytest.importorskip("torch")
    from compress.quantize.xnnpack import IntegerEmbedding

    table = torch.nn.Embedding(50, 16, padding_idx=0)
    rounded, ids = IntegerEmbedding(table), torch.tensor([[0, 7, 49]])
    assert rounded.integers.dtype == torch.int8
    step = table.weight.abs().amax(dim=1)[ids] / 127
    assert ((rounded(ids) - table(ids)).abs() <= step[..., None] * 0.51).all()
    assert rounded(ids)[0, 0].abs().sum() == 0


def test_without_the_library_the_extra_is_named(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "executorch.backends.xnnpack.quantizer.xnnpack_quantizer", None)
    with pytest.raises(MissingExtra, match="executorch is needed") as raised:
        build(NAME, source, tmp_path)
    assert "compress-encoders[executorch]" in raised.value.hint
