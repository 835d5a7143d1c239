"""What a folder says of itself."""

import pytest

from compress.errors import ModelError
from compress.model_info import FolderInfo, read_info, write_info


def test_the_folder_of_a_run_leads_to_its_winners(tmp_path):
    with pytest.raises(ModelError) as caught:
        read_info(tmp_path)
    assert "winner" not in caught.value.hint
    places = [tmp_path / "winner" / target for target in ("cpu", "cuda")]
    for place in places:
        place.mkdir(parents=True)
        write_info(place, FolderInfo(step="onnx-int8", made_by="tests"))
    with pytest.raises(ModelError) as caught:
        read_info(tmp_path)
    assert caught.value.hint == f"it is the folder of a run, whose winner is {places[0]} or {places[1]}"
