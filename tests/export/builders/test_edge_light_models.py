"""Students without attention as ExecuTorch and LiteRT files."""

import pytest

from compress.model_folder.model_info import FolderInfo
from compress.models import save_model
from compress.models.checkpoint_task import config_for
from compress.models.heads import HEADS
from compress.models.light_models import LIGHT_CONFIGS
from compress.runtime import open_predictor
from tests.edge_exports import EDGE_VARIANTS, largest_difference, needs_runtime
from tests.variant_builder import build

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("variant", EDGE_VARIANTS)
@pytest.mark.parametrize("kind", LIGHT_CONFIGS)
def test_it_repeats_the_model(kind, variant, tiny_tokenizer, tiny_task, tmp_path):
    needs_runtime(variant)
    special = [tiny_tokenizer.pad_token_id, tiny_tokenizer.cls_token_id, tiny_tokenizer.sep_token_id]
    config = LIGHT_CONFIGS[kind](
        vocab_size=len(tiny_tokenizer),
        hidden_size=16,
        buckets=60,
        head_width=12,
        num_hidden_layers=int(kind == "conv"),
        special_token_ids=special,
    )
    model = HEADS["sequence-classification"].model_class(type(config))(config_for(config, tiny_task)).eval()
    for name in ("source", "exported", "onnx"):
        (tmp_path / name).mkdir()
    save_model(model, tiny_tokenizer, tmp_path / "source", FolderInfo(step="static", made_by="tests", task=tiny_task))
    source = tmp_path / "source"
    if variant == "litert-int8":
        (tmp_path / "litert").mkdir()
        build("litert-fp32", source, tmp_path / "litert")
        source = tmp_path / "litert"
    build(variant, source, tmp_path / "exported")
    assert sorted(open_predictor(tmp_path / "exported").inputs) == ["attention_mask", "input_ids"]
    assert largest_difference(tmp_path / "exported", tmp_path / "source") < (1e-5 if "fp32" in variant else 0.1)
