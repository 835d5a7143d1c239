"""A disk that fills up while a variant is built: one clear message, whichever library writes the file."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compress.errors import CompressError, unexpected
from tests.variant_builder import build

ENOUGH_FOR_TEXT = 16 * 1024
"""Bytes: more than compress.json and the tokenizer have, less than any weights."""


@contextmanager
def full_disk() -> Iterator[None]:
    """Let files grow no further than a few texts do."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ENOUGH_FOR_TEXT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def exported(tiny_model, tiny_folder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    build("onnx-fp32", tiny_folder(tiny_model("bert", intermediate_size=512)), folder)
    return folder


@pytest.mark.parametrize(
    ("variant", "library"),
    [
        ("onnx-int8", "onnxruntime"),
        ("onnx-int8-embeddings-4bit", "onnxruntime"),
        ("openvino-fp32", "openvino"),
    ],
)
def test_a_file_that_does_not_fit_is_named_as_such(variant, library, exported, tmp_path):
    pytest.importorskip(library, reason=f"{library} is not installed")
    with full_disk(), pytest.raises((CompressError, OSError)) as raised:
        build(variant, exported, tmp_path)
    error = raised.value if isinstance(raised.value, CompressError) else unexpected(raised.value)
    assert "could not be written" in error.message
    assert "free some disk space" in (error.hint or "")
