import pytest

from compress.errors import UsageError
from compress.measure.bench import bench, read_target
from compress.recipe.schema import Target

CPU = Target(device="cpu")


def test_models_side_by_side_as_ratios_to_the_first(small, wide, tmp_path):
    missing = tmp_path / "gone"
    rows = bench([str(wide), str(small), str(missing)], CPU, rounds=3, seconds=0.02)
    assert [row["model"] for row in rows] == [str(wide), str(small), str(missing)]
    assert rows[0]["ratio"]["value"] == 1.0
    assert rows[1]["ratio"]["low"] <= rows[1]["ratio"]["value"] <= rows[1]["ratio"]["high"]
    assert rows[2]["status"].startswith("failed: ")
    assert rows[2]["p50 ms"] is None


def test_texts_give_their_own_lengths(small, tmp_path):
    (tmp_path / "texts.txt").write_text("good film\n\na very bad plot\n")
    (row,) = bench([str(small)], CPU, texts=tmp_path / "texts.txt", rounds=3, seconds=0.02)
    assert row["latency"]["end_to_end"]["calls"] > 0


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_texts_that_cannot_be_read(small, tmp_path, content):
    path = tmp_path / "texts.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="--texts"):
        bench([str(small)], CPU, texts=path)


def test_rounds_and_seconds_are_checked(small):
    with pytest.raises(UsageError, match="--rounds"):
        bench([str(small)], CPU, rounds=1)
    with pytest.raises(UsageError, match="--seconds"):
        bench([str(small)], CPU, seconds=0.0)


def test_targets_in_one_line():
    assert read_target("cpu, threads=2,batch=8,length=64") == Target(device="cpu", threads=2, batch=8, length=64)
    assert read_target("cpu") == CPU


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpuu", "no device is called 'cpuu'; did you mean cpu"),
        ("cpu,thread=2", "'thread=2' is not one of"),
        ("cpu,threads=0", "threads: "),
        ("cpu,threads", "'threads' is not one of"),
    ],
)
def test_targets_that_cannot_be_read(text, message):
    with pytest.raises(UsageError, match=message):
        read_target(text)
