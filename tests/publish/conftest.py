"""The winner of a run, a small working ONNX classifier, and the report that names it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compress.export.comparison.golden_inputs import golden_batches, write_golden
from compress.measure.quality.quality_result import Quality
from compress.measure.timing.latency import Latency
from compress.model_folder.model_info import Parent, read_info, write_info
from compress.publish.places import FolderPlace
from compress.publish.zoo import publish_entry
from compress.report.report_schema import Report
from compress.runtime import open_predictor
from tests.measure.conftest import write_variant
from tests.report.conftest import (
    VARIANTS,
    MakeReport,
    apply_gates,
    full_report,
    latency,
    made_report,
    quality,
)

RECIPE = {"name": "films", "teacher": {"source": "bert-base", "revision": None}}


@pytest.fixture
def make_report() -> MakeReport:
    return made_report


@pytest.fixture
def make_full_report() -> Callable[[], Report]:
    return full_report


@pytest.fixture
def quality_of() -> Callable[..., Quality]:
    return quality


@pytest.fixture
def latency_of() -> Callable[..., Latency]:
    return latency


@pytest.fixture(scope="session")
def report() -> Report:
    return apply_gates(made_report(recipe=RECIPE))


@pytest.fixture
def winner(tmp_path) -> Path:
    return write_winner(tmp_path / "run" / "cpu")


@pytest.fixture(scope="session")
def original(report, tmp_path_factory) -> Path:
    """A zoo with one entry; tests change copies of it."""
    folder = tmp_path_factory.mktemp("original")
    winners = {"cpu": write_winner(folder / "run" / "cpu")}
    publish_entry(winners, report, FolderPlace(folder / "zoo"), "films-small")
    return folder / "zoo"


@pytest.fixture
def published(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "zoo")) / "films-small@1"


@pytest.fixture
def publish(tmp_path) -> Callable[..., Path]:
    """Publish into a zoo, by default one of this test; returns the version's folder."""

    def into(winners, report, zoo=None, name="films", root=None, **more) -> Path:
        zoo = zoo or tmp_path / "zoo"
        record, _ = publish_entry(winners, report, FolderPlace(zoo), name, root, **more)
        return zoo / record.folder

    return into


@pytest.fixture
def two_winners(winner, tmp_path) -> dict[str, Path]:
    """The folders of different winners on two targets."""
    return {"cpu": winner, "phone": write_winner(tmp_path / "run" / "phone", "onnx-fp32")}


@pytest.fixture
def two_target_report() -> Report:
    """A report in which pruned/onnx-int8 wins on cpu and student/onnx-fp32 on phone."""
    report = made_report(recipe=RECIPE)
    phone = report.targets[0].model_copy(update={"title": "phone", "threads": 2})
    there = tuple(
        report.result(key, "cpu").model_copy(update={"target": "phone"})
        for key in ("teacher/torch-fp32", "student/onnx-fp32")
    )
    changes = {"targets": (report.targets[0], phone), "results": (*report.results, *there)}
    return apply_gates(report.model_copy(update=changes))


# A pair of keys for these tests alone, as `minisign -G -W` writes them.
PUBLIC = "RWR37tIaQwcnFtbwSveasA5nZxdsTjriMeWvCVAd4kINMd544kTbxNTs"
SECRET = (
    "RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAd+7SGkMHJxZwOJsDx8S/hayYIt3e"
    "t/OtS1BhQnaiS9bl71n6dePj39bwSveasA5nZxdsTjriMeWvCVAd4kINMd544kTbxNTsAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAA="
)


@pytest.fixture
def write_key(tmp_path) -> Path:
    """The file of a secret key of minisign, without a password."""
    path = tmp_path / "films.key"
    path.write_text(f"untrusted comment: minisign encrypted secret key\n{SECRET}\n")
    return path


FOUR_BITS = ("opset 20", "MatMulInteger", "com.microsoft.GatherBlockQuantized")


@pytest.fixture
def four_bit(tmp_path) -> tuple[dict[str, Path], Path, Report]:
    """A winner whose operators few runtimes have, the best variant that runs everywhere, and the report."""
    winner, root = write_winner(tmp_path / "run" / "cpu"), write_winner(tmp_path / "run" / "root", "onnx-fp32")
    info = read_info(winner)
    write_info(winner, info.model_copy(update={"variant": info.variant.model_copy(update={"operators": FOUR_BITS})}))
    report = made_report(recipe=RECIPE)
    marked = tuple(
        each.model_copy(update={"runs_everywhere": each.key == "student/onnx-fp32"}) for each in report.results
    )
    return {"cpu": winner}, root, apply_gates(report.model_copy(update={"results": marked}))


def write_winner(folder: Path, variant: str = "onnx-int8") -> Path:
    write_variant(folder, 8)
    parents = (Parent(step="export", fingerprint="f" * 64, digest="d" * 64),)
    stated = VARIANTS[variant].model_copy(update={"batch_sensitive": "int8" in variant})
    info = read_info(folder).model_copy(update={"variant": stated, "parents": parents})
    write_info(folder, info)
    write_golden(folder, golden_batches(folder, info.task), open_predictor(folder))
    return folder
