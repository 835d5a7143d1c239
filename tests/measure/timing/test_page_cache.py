"""What is read before a model is opened, and what all models of a session are fed."""

import shutil
from contextlib import ExitStack

import pytest

from compress.measure import Job
from compress.measure.timing import worker_pool
from compress.measure.timing.process_limits import Cores
from compress.measure.timing.worker_process import WorkerProcess
from compress.runtime import RUN_MODES
from compress.runtime.predictor import Placement


@pytest.fixture
def read(monkeypatch):
    """The names of the files that are read ahead."""

    def names(model, variant=None):
        requested = []
        needed = worker_pool.needed_files

        def noted(model, variant):
            requested.extend(needed(model, variant))
            return requested

        monkeypatch.setattr(worker_pool, "needed_files", noted)
        worker_pool.warm_page_cache(model, variant)
        return [path.name for path in requested]

    return names


def test_page_cache_is_warmed_with_external_weights(tmp_path, read):
    for name in ("a.onnx", "a.onnx.data", "b.onnx"):
        (tmp_path / name).write_bytes(b"1")
    assert read(tmp_path / "a.onnx") == ["a.onnx", "a.onnx.data"]


@pytest.mark.parametrize(("way", "name"), [("onnxruntime", "model.onnx"), ("torch-fp32", "model.safetensors")])
def test_page_cache_is_warmed_with_the_files_that_run(tmp_path, read, way, name):
    (tmp_path / "onnx").mkdir()
    for each in ("config.json", "model.safetensors", "onnx/model.onnx"):
        (tmp_path / each).write_bytes(b"1")
    assert read(tmp_path, RUN_MODES[way]) == ["config.json", name]


def test_missing_files_are_not_read(tmp_path, read):
    assert read(tmp_path / "gone") == []
    (tmp_path / "compress.json").write_text("{")
    assert read(tmp_path) == ["compress.json"]


def test_bare_file_gets_the_inputs_of_its_folder(small, tmp_path, monkeypatch):
    bare = shutil.copyfile(small / "model.onnx", tmp_path / "model.onnx")
    jobs = [Job(path.name, path, None, Placement(), length=8) for path in (small, bare)]
    specs = []
    monkeypatch.setattr(WorkerProcess, "send", lambda self, message: specs.append(message))
    with ExitStack() as processes:
        together = worker_pool.WorkerPool(jobs, (), Cores(), 0, processes)
        for job in jobs:
            together._launch(job)
    assert [spec.vocabulary for spec in specs] == [8, 8]
