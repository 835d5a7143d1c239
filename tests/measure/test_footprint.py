import pytest

from compress.errors import ModelError
from compress.measure.footprint import footprint


def test_a_variant_counts_what_predicting_needs(small, tmp_path):
    found = footprint(small)
    assert found.bytes_weights == (small / "model.onnx").stat().st_size
    assert found.bytes_total == sum(path.stat().st_size for path in small.iterdir())
    assert (found.parameters, found.embedding_parameters) == (120, 104)


def test_what_only_tells_about_the_model_is_left_out(small, tmp_path):
    before = footprint(small).bytes_total
    copy = tmp_path / "published"
    (copy / "report").mkdir(parents=True)
    for path in small.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "README.md").write_text("about")
    (copy / "digests.json").write_text("{}")
    (copy / "report" / "report.json").write_text("{}")
    assert footprint(copy).bytes_total == before


def test_a_bare_file_with_its_data_beside_it(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"12345")
    (tmp_path / "a.onnx.data").write_bytes(b"123")
    (tmp_path / "b.onnx").write_bytes(b"1")
    found = footprint(tmp_path / "a.onnx")
    assert (found.bytes_total, found.bytes_weights, found.parameters) == (8, 8, None)


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_nothing_to_measure(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="holds no weights"):
        footprint(tmp_path / name)
