"""What only LiteRT's files have: fixed lengths, and a runtime that is an extra of its own."""

import sys

import numpy as np
import pytest

from compress.errors import MissingExtra
from compress.runtime import open_predictor
from tests.edge_exports import needs_runtime, padded_batch
from tests.variant_builder import build


@pytest.fixture(scope="module")
def exported(tiny_folder, tmp_path_factory):
    """The LiteRT export of a BERT folder."""
    needs_runtime("litert-fp32")
    work = tmp_path_factory.mktemp("litert")
    build("litert-fp32", tiny_folder("bert"), work)
    return work


def test_lengths_double_up_to_the_longest():
    pytest.importorskip("litert_torch", reason="litert-torch is not installed")
    from compress.export.builders.litert import lengths

    assert lengths(128) == [16, 32, 64, 128]
    assert lengths(100) == [16, 32, 64, 100]
    assert lengths(16) == [16]
    assert lengths(10) == [10]


def test_a_row_has_the_same_outputs_in_every_length(exported):
    predictor = open_predictor(exported)
    short = padded_batch(rows=1, length=11)
    wide = {name: np.pad(array, ((0, 0), (0, 20))) for name, array in short.items()}
    wide["attention_mask"][0, -1] = 0
    ours, theirs = predictor.predict(short)["logits"], predictor.predict(wide)["logits"]
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_without_its_runtime_the_extra_is_named(exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(MissingExtra, match="ai_edge_litert is needed") as raised:
        open_predictor(exported)
    assert "compress-encoders[litert-runtime]" in raised.value.hint
