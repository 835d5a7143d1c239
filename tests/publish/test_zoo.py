"""Versions of published models: what one holds, how it is claimed, and what a failed publication leaves."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from compress.cli import main
from compress.errors import ModelError, UsageError
from compress.model_folder.model_info import read_info, write_info
from compress.publish.measured import read_measured
from compress.publish.places import FolderPlace
from compress.publish.published_model import find
from compress.publish.pull import pull
from compress.publish.records import Record, VariantRecord
from compress.publish.verify import verify
from compress.publish.zoo import find_published, publish_entry, withdraw
from compress.publish.zoo_index import choose, read_index, versions_of
from compress.report.report_schema import read_report, write_report
from compress.runtime.text_model import TextModel
from tests.publish.conftest import FOUR_BITS
from tests.report.conftest import apply_gates

TEXTS = ["good film", "a very bad plot"]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def another(winner):
    """The winner of another run."""

    def make(number=1):
        (winner / "config.json").write_text(json.dumps({"model_type": "bert", "pad_token_id": 0, "more": number}))
        return {"cpu": winner}

    return make


class TestContent:
    def test_an_entry_is_complete_and_predicts(self, published, winner, report):
        names = {path.relative_to(published).as_posix() for path in published.rglob("*") if path.is_file()}
        assert names == {
            "README.md",
            "compress.json",
            "config.json",
            "digests.json",
            "golden.safetensors",
            "measured.json",
            "onnx/model.onnx",
            "report/report.html",
            "report/report.json",
            "report/report.md",
            "tokenizer.json",
            "tokenizer_config.json",
        }
        page = (published / "report" / "report.html").read_text(encoding="utf-8").replace("&#34;", '"')
        assert 'compress predict films-small "a text"' in page
        assert "runs/" not in page
        assert verify(published) == 11
        assert read_report(published / "report") == report
        assert TextModel.open(published).predict(TEXTS) == TextModel.open(winner).predict(TEXTS)

    def test_a_winner_of_an_earlier_version_is_published_with_the_task_length(self, winner, report, publish):
        content = {**json.loads((winner / "tokenizer.json").read_bytes()), "truncation": None}
        (winner / "tokenizer.json").write_text(json.dumps(content))
        (winner / "tokenizer_config.json").write_text('{"max_length": 128, "model_max_length": 512}')
        length = read_info(winner).task.max_length
        entry = publish({"cpu": winner}, report)
        settings = json.loads((entry / "tokenizer_config.json").read_bytes())
        assert settings["model_max_length"] == length
        assert "max_length" not in settings
        assert json.loads((entry / "tokenizer.json").read_bytes())["truncation"]["max_length"] == length
        assert "512" in (winner / "tokenizer_config.json").read_text()
        verify(entry)

    def test_winners_of_several_targets_share_an_entry(self, two_winners, two_target_report, publish, tmp_path):
        entry = publish(two_winners, two_target_report)
        variant = entry / "variants" / "student-onnx-fp32"
        files = {"README.md", "compress.json", "config.json", "digests.json", "golden.safetensors", "measured.json"}
        assert set(names_in(variant)) == files | {"onnx", "tokenizer.json", "tokenizer_config.json"}
        assert verify(entry) == verify(variant) + 12
        measured, shown = read_measured(variant), (variant / "README.md").read_text(encoding="utf-8")
        assert f"accuracy {100 * measured.score.value:.1f} on {measured.test_rows:,} rows of test" in shown
        assert f"a call on {measured.cpu} (target phone)" in shown
        assert TextModel.open(variant).predict(TEXTS) == TextModel.open(two_winners["phone"]).predict(TEXTS)
        assert TextModel.open(entry).predict(TEXTS) == TextModel.open(two_winners["cpu"]).predict(TEXTS)
        (record,) = read_index(FolderPlace(tmp_path / "zoo")).records
        assert (record.main.variant, record.target) == ("onnx-int8", "cpu")
        assert [(one.path, one.targets, one.batch_sensitive) for one in record.variants] == [
            (".", ("cpu",), True),
            ("variants/student-onnx-fp32", ("phone",), False),
        ]
        assert "run each text alone" in (entry / "README.md").read_text().lower()
        assert "**Batches.**" not in (variant / "README.md").read_text()
        (variant / "config.json").write_text("{}")
        with pytest.raises(ModelError, match=r"variants/student-onnx-fp32/config\.json has 2 bytes"):
            verify(entry)

    def test_the_root_runs_everywhere_and_a_winner_that_does_not_is_below_variants(self, four_bit, publish, tmp_path):
        winners, root, report = four_bit
        entry = publish(winners, report, root=root)
        assert read_info(entry).variant.name == "onnx-fp32"
        assert read_info(entry / "variants" / "pruned-onnx-int8").variant.operators == FOUR_BITS
        assert json.loads((entry / "config.json").read_text())["transformers.js_config"] == {"dtype": "fp32"}
        verify(entry)
        assert TextModel.open(entry).predict(TEXTS) == TextModel.open(root).predict(TEXTS)
        (record,) = read_index(FolderPlace(tmp_path / "zoo")).records
        assert (record.main.variant, record.target) == ("onnx-fp32", "cpu")
        assert [(one.path, one.targets, one.runs_everywhere) for one in record.variants] == [
            (".", (), True),
            ("variants/pruned-onnx-int8", ("cpu",), False),
        ]

    def test_where_nothing_runs_everywhere_the_root_is_the_winner(self, four_bit, publish, tmp_path):
        winners, _, report = four_bit
        assert read_info(publish(winners, report)).variant.name == "onnx-int8"
        (record,) = read_index(FolderPlace(tmp_path / "zoo")).records
        (listed,) = record.variants
        assert (listed.path, listed.runs_everywhere) == (".", False)

    def test_a_row_that_wins_on_two_targets_is_published_once(self, two_winners, two_target_report, publish, tmp_path):
        first, second = two_target_report.verdicts
        results = tuple(
            each.model_copy(update={"target": title})
            for each in two_target_report.results
            if each.target == "cpu"
            for title in ("cpu", "phone")
        )
        verdicts = (first, second.model_copy(update={"winner": first.winner}))
        report = two_target_report.model_copy(update={"results": results, "verdicts": verdicts})
        entry = publish(dict.fromkeys(("cpu", "phone"), two_winners["cpu"]), report)
        assert not (entry / "variants").exists()
        (record,) = read_index(FolderPlace(tmp_path / "zoo")).records
        assert record.main.targets == ("cpu", "phone")

    def test_the_folder_must_hold_the_winner(self, winner, report, publish, make_report):
        info = read_info(winner)
        write_info(winner, info.model_copy(update={"variant": info.variant.model_copy(update={"name": "onnx-fp32"})}))
        with pytest.raises(ModelError, match="holds onnx-fp32; the report's winner on cpu is pruned/onnx-int8"):
            publish({"cpu": winner}, report)
        with pytest.raises(UsageError, match="names no winner on target 'cuda'"):
            publish({"cuda": winner}, report)
        with pytest.raises(UsageError, match="names no winner"):
            publish({"cpu": winner}, apply_gates(make_report(rows=(), results=())))


class TestVersions:
    def test_another_result_is_the_next_version_and_nothing_is_overwritten(self, published, another, report, publish):
        zoo = published.parent
        before = {path: path.read_bytes() for path in published.rglob("*") if path.is_file()}
        second = publish(another(), report, zoo, "films-small")
        assert second == zoo / "films-small@2"
        assert {path: path.read_bytes() for path in before} == before
        assert find(f"{zoo}/films-small").record.version == "2"
        assert find(f"{zoo}/films-small@1").record.version == "1"
        listed = ["films-small@1", "films-small@1.json", "films-small@2", "films-small@2.json"]
        assert names_in(zoo) == [*listed, "index.html", "index.json"]

    def test_what_the_newest_version_holds_is_not_published_again(self, published, winner, another, report):
        place = FolderPlace(published.parent)
        before = sorted((path, path.stat().st_mtime_ns) for path in place.root.rglob("*"))
        record, is_new = publish_entry({"cpu": winner}, report, place, "films-small")
        assert (record.version, is_new) == ("1", False)
        assert sorted((path, path.stat().st_mtime_ns) for path in place.root.rglob("*")) == before
        publish_entry(another(), report, place, "films-small")
        shutil.copyfile(published / "config.json", winner / "config.json")
        record, is_new = publish_entry({"cpu": winner}, report, place, "films-small")
        assert (record.version, is_new) == ("3", True)  # the first one again is newer than the second

    def test_a_version_of_ones_own(self, published, another, report, publish):
        zoo = published.parent
        assert publish(another(), report, zoo, "films-small", version="2026.1-rc") == zoo / "films-small@2026.1-rc"
        assert find(f"{zoo}/films-small").record.version == "2026.1-rc"
        assert publish(another(2), report, zoo, "films-small") == zoo / "films-small@2"
        assert find(f"{zoo}/films-small").record.version == "2"

    def test_a_version_that_exists_is_never_overwritten(self, published, another, report, publish):
        with pytest.raises(UsageError) as refused:
            publish(another(), report, published.parent, "films-small", version="1")
        assert "films-small@1 exists in" in refused.value.message
        assert "is never overwritten: it holds films-small@1 of" in refused.value.message
        assert "onnx-int8" in refused.value.message
        assert refused.value.hint.startswith("choose another --version")
        verify(published)

    @pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b", "films\n", "a@1", "a" * 250])
    def test_unsafe_names_are_refused(self, name, winner, report, publish, tmp_path):
        with pytest.raises(UsageError, match="the name of a published model"):
            publish({"cpu": winner}, report, name=name)
        assert not (tmp_path / "zoo").exists()

    @pytest.mark.parametrize("version", ["", "../up", "a/b", ".1", "1 2", "1\n", "1@2", "9" * 80, "0"])
    def test_unsafe_versions_are_refused(self, version, winner, report, publish, tmp_path):
        with pytest.raises(UsageError, match="the version of a published model"):
            publish({"cpu": winner}, report, version=version)
        assert not (tmp_path / "zoo").exists()

    def test_a_withdrawn_version_is_passed_over_and_says_why(self, published, another, report, publish):
        place = FolderPlace(published.parent)
        publish(another(), report, place.root, "films-small")
        assert withdraw(place, "films-small@2", "wrong labels").why == "wrong labels"
        assert find(f"{place.root}/films-small").record.version == "1"
        assert find(f"{place.root}/films-small@2").record.why == "wrong labels"
        verify(place.root / "films-small@2")  # its files stay
        with pytest.raises(UsageError, match=r"exists in .* it was withdrawn"):
            publish(another(2), report, place.root, "films-small", version="2")
        assert publish(another(2), report, place.root, "films-small").name == "films-small@3"
        for version in ("1", "3"):
            withdraw(place, f"films-small@{version}", "all of them")
        with pytest.raises(
            ModelError, match=r"every version of films-small in .* was withdrawn; the last: all of them"
        ):
            find(f"{place.root}/films-small")

    def test_what_was_killed_before_the_index_was_written_is_mended(
        self, winner, another, report, publish, published, monkeypatch
    ):
        def stop(*_):
            raise KeyboardInterrupt

        place = FolderPlace(published.parent)
        with monkeypatch.context() as patch:
            patch.setattr("compress.publish.zoo.write_index", stop)
            with pytest.raises(KeyboardInterrupt):
                withdraw(place, "films-small@1", "wrong labels")
            with pytest.raises(KeyboardInterrupt):
                publish(another(), report, published.parent, "films-small")
        index = json.loads((published.parent / "index.json").read_text())
        assert [each["record"].get("state", "published") for each in index["versions"].values()] == ["published"]
        assert withdraw(place, "films-small@1", "wrong labels").state == "withdrawn"  # goes on, and says so once
        with pytest.raises(UsageError, match="is withdrawn already"):
            withdraw(place, "films-small@1", "wrong labels")
        publish(another(), report, published.parent, "films-small")
        index = json.loads((published.parent / "index.json").read_text())
        states = [each["record"].get("state", "published") for each in index["versions"].values()]
        assert states == ["withdrawn", "published"]
        page = (published.parent / "index.html").read_text()
        assert ("films-small@2" in page, "films-small@1" in page) == (True, False)

    @pytest.mark.parametrize("command", ["pull", "verify"])
    def test_whoever_names_a_withdrawn_version_gets_the_reason(self, command, published, tmp_path, capsys):
        withdraw(FolderPlace(published.parent), "films-small@1", "wrong labels")
        to = [str(tmp_path / "copy")] if command == "pull" else []
        assert main([command, f"{published.parent}/films-small@1", *to]) == 0
        assert "films-small@1 was withdrawn: wrong labels" in " ".join(capsys.readouterr().err.split())

    def test_a_version_is_withdrawn_once(self, published):
        withdraw(FolderPlace(published.parent), "films-small@1", "wrong labels")
        with pytest.raises(UsageError, match="films-small@1 is withdrawn already: wrong labels"):
            withdraw(FolderPlace(published.parent), "films-small@1", "other labels")

    @pytest.mark.parametrize(
        ("address", "message"),
        [
            ("films-small", "name the version that is withdrawn"),
            ("films-small@7", "has no version '7' of films-small"),
            ("nobody@1", "has no published model called 'nobody'"),
            ("../x@1", "the name of a published model"),
        ],
    )
    def test_only_a_version_that_exists_is_withdrawn(self, address, message, published):
        with pytest.raises((UsageError, ModelError), match=message):
            withdraw(FolderPlace(published.parent), address, "no reason")

    def test_the_newest_is_the_newest_where_a_clock_is_behind(self, published, another, report, publish):
        place = FolderPlace(published.parent)
        (first,) = versions_of(place, "films-small")
        ahead = first.model_copy(update={"published": datetime.now(UTC) + timedelta(days=1)})
        place.write(first.file, ahead.content())
        publish(another(), report, place.root, "films-small")
        assert [each.version for each in versions_of(place, "films-small")] == ["1", "2"]

    def test_whether_the_newest_version_has_these_winners_and_this_report(
        self, two_winners, two_target_report, publish
    ):
        report, one = two_target_report, {"cpu": two_winners["cpu"]}
        entry = publish(two_winners, report)
        place = FolderPlace(entry.parent)
        assert find_published(two_winners, report, place, "films").version == "1"
        assert find_published(one, report, place, "films") is None
        assert find_published(two_winners, report.model_copy(update={"name": "other"}), place, "films") is None
        assert find_published(two_winners, report, place, "others") is None
        info = read_info(two_winners["cpu"])
        write_info(two_winners["cpu"], info.model_copy(update={"made_by": "another version"}))
        assert find_published(two_winners, report, place, "films") is None


class TestInterrupted:
    def test_a_failure_leaves_the_zoo_unchanged(self, published, winner, report, publish, monkeypatch):
        def fail(entry):
            raise ModelError("no card today")

        monkeypatch.setattr("compress.publish.zoo.model_card", fail)
        before = names_in(published.parent)
        with pytest.raises(ModelError, match="no card today"):
            publish({"cpu": winner}, report, published.parent, "films-small")
        assert names_in(published.parent) == before

    KILLED = """
        import os, signal, sys
        from pathlib import Path
        from compress.publish import places, zoo
        from compress.report.report_schema import read_report

        original = getattr(places.FolderPlace, sys.argv[1])

        def kill(*arguments):
            original(*arguments) if sys.argv[2] == "after" else None
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(places.FolderPlace, sys.argv[1], kill)
        winner, report, folder = map(Path, sys.argv[3:])
        zoo.publish_entry({"cpu": winner}, read_report(report), places.FolderPlace(folder), "films-small")
    """

    @pytest.mark.slow
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("step", ["create", "upload", "write"])
    def test_a_kill_leaves_nothing_that_counts(self, step, when, published, another, report, publish, tmp_path):
        zoo = published.parent
        write_report(tmp_path, report)
        winners = another()
        arguments = [step, when, winners["cpu"], tmp_path / "report.json", zoo]
        killed = subprocess.run([sys.executable, "-c", textwrap.dedent(self.KILLED), *map(str, arguments)], check=False)
        assert killed.returncode == -signal.SIGKILL
        verify(published)
        counted = [each.version for each in read_index(FolderPlace(zoo)).records]
        assert counted == (["1", "2"] if (step, when) == ("write", "after") else ["1"])
        assert find(f"{zoo}/films-small").record.version == counted[-1]
        assert publish(winners, report, zoo, "films-small") == zoo / "films-small@2"  # the same command goes on
        verify(zoo / "films-small@2")
        assert not [name for name in os.listdir(zoo) if name.startswith(".films-small@2.new")]  # noqa: PTH208

    def test_others_do_not_take_a_version_that_was_begun(self, published, another, report, publish):
        place = FolderPlace(published.parent)
        (first,) = versions_of(place, "films-small")
        begun = first.model_copy(update={"version": "2", "state": "claimed", "digest": "1" * 64})
        place.create(begun.file, begun.content())
        assert publish(another(), report, place.root, "films-small").name == "films-small@3"
        with pytest.raises(UsageError, match="was begun and not finished, with other files"):
            publish(another(2), report, place.root, "films-small", version="2")

    def test_eight_publishers_at_once_lose_nothing(self, published, report, winner, tmp_path):
        place = FolderPlace(published.parent)

        def publish_one(number):
            folder = shutil.copytree(winner, tmp_path / f"winner-{number}")
            (folder / "config.json").write_text(json.dumps({"model_type": "bert", "pad_token_id": 0, "more": number}))
            return publish_entry({"cpu": folder}, report, place, "films-small")[0]

        with ThreadPoolExecutor(8) as pool:
            records = list(pool.map(publish_one, range(8)))
        assert sorted(int(each.version) for each in records) == list(range(2, 10))
        index = json.loads((place.root / "index.json").read_bytes())
        assert len(index["versions"]) == 9
        for record in records:
            assert find(f"{place.root}/{record.address}").record.digest == record.digest
            verify(place.root / record.folder)

    def test_folders_of_others_are_left_as_they_are(self, winner, report, publish, tmp_path):
        result = tmp_path / "zoo" / "films@1"
        result.mkdir(parents=True)
        (result / "thesis.txt").write_text("years of work")
        with pytest.raises(UsageError, match="was not published by compress; it is left as it is"):
            publish({"cpu": winner}, report)
        assert names_in(result) == ["thesis.txt"]

    def test_a_zoo_that_is_a_file_is_refused(self, winner, report, publish, tmp_path):
        (tmp_path / "zoo").write_text("a file")
        with pytest.raises(UsageError, match="is no folder, which a zoo needs to be"):
            publish({"cpu": winner}, report)

    def test_a_full_disk_is_one_message_and_nothing_counts(self, published, another, report, publish, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("compress.publish.places.copy_content", full)
        with pytest.raises(ModelError, match=r"cannot be written: No space left on device") as failed:
            publish(another(), report, published.parent, "films-small")
        assert "free some disk space" in failed.value.hint
        assert [each.version for each in read_index(FolderPlace(published.parent)).records] == ["1"]
        monkeypatch.undo()
        assert publish(another(), report, published.parent, "films-small").name == "films-small@2"


class TestIndex:
    @pytest.mark.parametrize("content", ["", "[]", '{"models": []}', '{"schema_version": 9}', "{", None])
    def test_it_is_made_of_the_records(self, content, published, another, report, publish):
        zoo = published.parent
        (zoo / "index.json").unlink() if content is None else (zoo / "index.json").write_text(content)
        assert [each.address for each in read_index(FolderPlace(zoo)).records] == ["films-small@1"]
        publish(another(), report, zoo, "films-small")
        assert list(json.loads((zoo / "index.json").read_text())["versions"]) == ["films-small@1", "films-small@2"]

    def test_records_that_did_not_change_are_not_read_again(self, published, monkeypatch):
        place = FolderPlace(published.parent)
        before = read_index(place)
        (place.root / "films-small@1.json").chmod(0)
        monkeypatch.setattr("compress.publish.zoo_index.parse_record", lambda *_: pytest.fail("read again"))
        assert read_index(place) == before

    def test_a_record_that_was_removed_is_not_listed(self, published):
        (published.parent / "films-small@1.json").unlink()
        assert read_index(FolderPlace(published.parent)).records == []

    def test_a_record_of_another_version_is_refused(self, published):
        zoo = published.parent
        shutil.copyfile(zoo / "films-small@1.json", zoo / "films-small@5.json")
        with pytest.raises(ModelError, match=r"is the record of films-small@1, expected that of films-small@5"):
            find(f"{zoo}/films-small@5")

    def test_a_record_of_a_later_schema_is_refused(self, published):
        path = published.parent / "films-small@1.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2}))
        with pytest.raises(ModelError, match="written by a newer version of compress"):
            find(str(published))


class TestEarlierEntries:
    @pytest.fixture
    def earlier(self, published):
        """A zoo as it was written before entries had versions."""
        zoo = published.parent
        (zoo / "films-small@1").rename(zoo / "films-small")
        record = Record.model_validate_json((zoo / "films-small@1.json").read_bytes())
        entry = {
            "task": "films",
            "metric": "accuracy",
            "variant": "onnx-int8",
            "shape": "2x32",
            "score": 0.906,
            "p50_ms": 1.5,
            "bytes": 1000,
            "target": "cpu",
            "digest": record.digest,
            "published": "2026-01-02T03:04:05+00:00",
        }
        (zoo / "films-small@1.json").unlink()
        (zoo / "index.html").unlink()
        (zoo / "index.json").write_text(json.dumps({"schema_version": 1, "models": {"films-small": entry}}))
        return zoo

    def test_they_are_listed_pulled_and_opened(self, earlier, tmp_path):
        (record,) = read_index(FolderPlace(earlier)).records
        assert (record.address, record.folder, record.main.score) == ("films-small@0", "films-small", 0.906)
        for address in ("films-small", "films-small@0"):
            assert find(f"{earlier}/{address}").folder == "films-small"
        pull(f"{earlier}/films-small", tmp_path / "copy")
        assert TextModel.open(tmp_path / "copy").predict(TEXTS)

    def test_the_next_publication_is_a_version_beside_it(self, earlier, another, report, publish):
        assert publish(another(), report, earlier, "films-small").name == "films-small@1"
        assert find(f"{earlier}/films-small").record.version == "1"
        assert [each.version for each in read_index(FolderPlace(earlier)).records] == ["0", "1"]
        verify(earlier / "films-small")
        with pytest.raises(UsageError, match="before entries had versions"):
            withdraw(FolderPlace(earlier), "films-small@0", "old")


def test_an_unknown_version_names_the_nearest(published):
    with pytest.raises(ModelError, match="has no version '11' of films-small; did you mean 1"):
        choose(versions_of(FolderPlace(published.parent), "films-small"), "zoo", "films-small", "11")


def test_lists_show_the_figures_of_the_winner_and_not_of_what_runs_everywhere():
    root = VariantRecord(path=".", variant="onnx-int8", p50_ms=0.105, bytes=4_900_000, runs_everywhere=True)
    won = VariantRecord(path="variants/static", variant="numpy-int8", p50_ms=0.02, bytes=1_600_000, targets=("cpu",))
    facts = {"name": "films", "version": "1", "published": "2026-11-29T00:00:00Z", "digest": "0" * 64}
    assert Record(**facts, variants=(root, won)).winner == won
    assert "numpy-int8, 0.02 ms, 1.6 MB" in Record(**facts, variants=(root, won)).in_words
    assert Record(**facts, variants=(root,)).winner == root
