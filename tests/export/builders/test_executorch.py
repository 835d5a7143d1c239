"""What only ExecuTorch's programs have: one pool of threads for a process."""

import pytest

from compress.errors import ModelError
from compress.export.builders.executorch import trace
from compress.export.from_pytorch import PositionalModel
from compress.runtime import open_predictor
from compress.runtime.predictor import Placement
from tests.edge_exports import needs_runtime
from tests.variant_builder import build


def test_programs_of_a_process_share_their_threads(tiny_folder, tmp_path):
    needs_runtime("executorch-fp32")
    build("executorch-fp32", tiny_folder("bert"), tmp_path)
    predictor = open_predictor(tmp_path)
    with pytest.raises(ModelError, match="programs in use have 1, and 2 are requested"):
        open_predictor(tmp_path, Placement("cpu", 2))
    assert predictor.describe()["threads"] == 1


@pytest.mark.parametrize("longest", [4, 7])
def test_a_model_of_short_texts_is_traced_with_a_row_that_it_reads(longest, tiny_model):
    named = PositionalModel(tiny_model("bert"))
    program = trace(named, named, longest)
    bounds = program.range_constraints.values()
    assert [(int(each.lower), int(each.upper)) for each in bounds] == [(3, longest)]
