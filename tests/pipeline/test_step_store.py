import multiprocessing
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from compress.console import Console
from compress.pipeline.commands.clean import clean
from compress.pipeline.step_store import StepRecord, StepStore, content_digest, share_folder
from compress.storage.atomic_write import atomic_copy_folder, atomic_write


def record(step: str = "distill", fingerprint: str = "f1") -> StepRecord:
    return StepRecord(
        step=step,
        kind=step,
        version=1,
        fingerprint=fingerprint,
        settings={},
        inputs={},
        digest="d",
        seconds=1.0,
        machine="m",
        versions={},
        peak_memory=1,
        created="2026-01-01T00:00:00+00:00",
    )


def finished(store: StepStore, step: str = "distill", fingerprint: str = "f1", content: str = "weights") -> Path:
    work = store.partial(step, fingerprint)
    (work / "model").write_text(content)
    return store.finish(record(step, fingerprint), work)


def test_step_is_absent_until_it_is_finished(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    (store.partial("distill", "f1") / "half").write_text("x")
    assert store.record("distill", "f1") is None
    assert not store.folder("distill", "f1").exists()


def test_a_finished_step_replaces_an_older_one(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    finished(store, content="old")
    folder = finished(store, content="new")
    assert (folder / "model").read_text() == "new"
    assert store.record("distill", "f1") == record()
    assert [path.name for path in store.all_steps()] == ["distill-f1"]


def test_unreadable_record_is_treated_as_absent(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    folder = finished(store)
    (folder / "step.json").write_text('{"schema_version": 1')
    assert store.record("distill", "f1") is None
    assert list(store.records()) == []


def test_partial_folder_of_a_killed_attempt_is_reused(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    (store.partial("distill", "f1") / "checkpoint").write_text("step 40")
    assert (store.partial("distill", "f1") / "checkpoint").read_text() == "step 40"


def test_digest_covers_contents_and_names_except_the_record(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = content_digest(tmp_path)
    (tmp_path / "step.json").write_text("{}")
    assert content_digest(tmp_path) == before
    (tmp_path / "a").rename(tmp_path / "b")
    assert content_digest(tmp_path) != before


def hold_until_told(root: Path, held: Event, go: Event) -> None:
    with StepStore(root).hold("step", Console("quiet")):
        held.set()
        go.wait(20)


@pytest.mark.slow
def test_second_process_waits_and_names_the_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context = multiprocessing.get_context("spawn")
    held, go = context.Event(), context.Event()
    other = context.Process(target=hold_until_told, args=(tmp_path, held, go))
    other.start()
    assert held.wait(20)
    store = StepStore(tmp_path)
    assert store.is_held("step")
    go_soon = context.Process(target=set_soon, args=(go,))
    go_soon.start()
    with store.hold("step", Console("human")):
        pass
    other.join(20)
    go_soon.join(20)
    assert f"process {other.pid}" in capsys.readouterr().err
    assert not store.is_held("step")


def set_soon(go: Event) -> None:
    import time

    time.sleep(0.5)
    go.set()


def test_clean_keeps_steps_that_a_run_names(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    named, gone = finished(store, fingerprint="kept"), finished(store, fingerprint="gone")
    half = store.partial("distill", "half")
    atomic_write(tmp_path / "mine" / "lock.json", '{"steps": {"distill": "distill-kept"}}')
    would = clean(tmp_path, dry_run=True)
    assert {Path(row["folder"]).name for row in would} == {"distill-gone", "distill-half"}
    assert gone.exists()
    clean(tmp_path)
    assert named.exists()
    assert not gone.exists()
    assert not half.exists()


def test_clean_keeps_what_a_run_takes_over(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    taken = store.steps / ".partial" / "distill-f1.adopted"
    taken.mkdir(parents=True)
    with store.hold("distill-f1", Console("quiet")):
        clean(tmp_path)
        assert taken.exists()
    clean(tmp_path)
    assert not taken.exists()


def test_clean_keeps_steps_of_a_run_that_begins_meanwhile(tmp_path: Path, monkeypatch) -> None:
    store = StepStore(tmp_path)
    folder, discard = finished(store, fingerprint="b"), StepStore.discard
    first = finished(store, fingerprint="a")

    def begun(self, removed):
        discard(self, removed)
        atomic_write(tmp_path / "mine" / "lock.json", '{"steps": {"distill": "distill-b"}}')

    monkeypatch.setattr(StepStore, "discard", begun)
    clean(tmp_path)
    assert folder.exists()
    assert not first.exists()


def test_clean_removes_nothing_when_a_lock_cannot_be_read(tmp_path: Path) -> None:
    gone = finished(StepStore(tmp_path))
    atomic_write(tmp_path / "mine" / "lock.json", "{")
    with pytest.raises(Exception, match=r"lock\.json cannot be read"):
        clean(tmp_path)
    assert gone.exists()


def test_copies_replace_folders(tmp_path: Path) -> None:
    first, second, target = tmp_path / "first", tmp_path / "second", tmp_path / "target"
    for folder, name in ((first, "a"), (second, "b")):
        folder.mkdir()
        (folder / name).write_text(name)
    for folder in (first, second):
        atomic_copy_folder(folder, target)
    assert [path.name for path in target.iterdir()] == ["b"]


def test_attempt_on_other_inputs_is_not_resumed(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    work = store.begin("recover", "f1", {"cut": "a"})
    (work / "checkpoint").write_text("step 40")
    assert (store.begin("recover", "f1", {"cut": "a"}) / "checkpoint").is_file()
    assert not (store.begin("recover", "f1", {"cut": "b"}) / "checkpoint").exists()


@pytest.mark.parametrize(("inputs", "forced", "kept"), [("a", False, True), ("b", False, False), ("a", True, False)])
def test_a_step_that_lacks_its_renaming_alone_is_complete(inputs, forced, kept, tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    work = store.begin("recover", "f1", {"cut": "a"})
    (work / "model").write_text("weights")
    written = record("recover").model_copy(update={"digest": content_digest(work)})
    (work / "step.json").write_text(written.model_dump_json())
    work = store.begin("recover", "f1", {"cut": inputs}, forced)
    assert (store.completed(work) is not None) == kept
    if kept:
        (work / "model").write_text("damaged")
        assert store.completed(work) is None


def test_failed_step_leaves_a_folder_only_to_resume_from(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    work = store.begin("recover", "f1", {})
    store.abandon(work)
    assert not work.exists()
    (store.begin("recover", "f1", {}) / "checkpoint").write_text("step 40")
    store.abandon(work)
    assert (work / "checkpoint").is_file()


def test_a_shared_folder_replaces_what_a_killed_attempt_left(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "model.onnx").write_text("graph")
    share_folder(source, target)
    (target / "session.json").write_text("partial")
    share_folder(source, target)
    assert (target / "model.onnx").read_text() == "graph"
    assert (source / "model.onnx").read_text() == "graph"
