import subprocess
import sys

import pytest

from compress.errors import ModelError
from compress.families import FAMILIES, family_named, max_positions, require_prunable


def test_table_is_read_without_torch_or_transformers():
    code = "import sys, compress.families; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nonuniform_model_type_belongs_to_its_family():
    assert family_named("compress-bert") is FAMILIES["bert"]


def test_unknown_family_names_nearest_one():
    with pytest.raises(ModelError, match=r"distilbart.*did you mean distilbert"):
        family_named("distilbart")


def test_families_that_cannot_be_pruned_name_those_that_can():
    require_prunable(FAMILIES["bert"])
    for name in ("albert", "mobilebert", "modernbert"):
        with pytest.raises(
            ModelError, match=f"{name} cannot be pruned.*bert, roberta, xlm-roberta, electra, distilbert"
        ):
            require_prunable(FAMILIES[name])


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [("bert", 514), ("roberta", 512), ("compress-roberta", 512), ("camembert", 512), ("unheard-of", 514)],
)
def test_positions_before_the_padding_id_do_not_count(model_type, expected):
    assert max_positions({"model_type": model_type, "max_position_embeddings": 514}, pad_id=1) == expected


@pytest.mark.parametrize("positions", [None, 0, -1, "512"])
def test_config_without_position_table_has_no_limit(positions):
    assert max_positions({"model_type": "bert", "max_position_embeddings": positions}, pad_id=0) is None
