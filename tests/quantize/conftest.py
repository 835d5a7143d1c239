"""What the tests of quantizers share."""

import pytest

from tests.variant_builder import build


@pytest.fixture(scope="module")
def exported(tiny_folder, tmp_path_factory):
    """The fp32 ONNX export of a tiny BERT."""
    work = tmp_path_factory.mktemp("exported")
    build("onnx-fp32", tiny_folder("bert"), work)
    return work
