"""Places: a folder, S3's interface and http answer alike, and faults of each end in one message."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from compress.cli import main
from compress.errors import CompressError, MissingExtra, ModelError, UsageError
from compress.publish import places
from compress.publish.places import Absent, CloudPlace, FolderPlace, WebPlace, fetch, open_place, read
from compress.publish.published_model import find
from compress.publish.pull import opened, pull
from compress.publish.verify import verify
from compress.publish.zoo import publish_entry, withdraw
from compress.publish.zoo_index import read_index, versions_of
from compress.runtime.text_model import TextModel

TEXTS = ["good film", "a very bad plot"]


@pytest.fixture(scope="module")
def s3():
    """A local server with S3's interface, with one bucket."""
    boto3, server = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    import logging

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="models")
        yield boto3.client("s3")
    running.stop()


@pytest.fixture
def bucket(s3, request):
    """The address of a place of this test."""
    return f"s3://models/{abs(hash(request.node.nodeid))}"


@pytest.fixture(params=["folder", "s3"])
def place(request, tmp_path):
    return open_place(request.getfixturevalue("bucket") if request.param == "s3" else str(tmp_path / "place"))


class TestFilesOfAPlace:
    @pytest.mark.slow
    def test_one_that_does_not_exist_is_empty(self, place):
        assert place.files() == {}
        with pytest.raises(Absent, match="there is no"):
            read(place, "a@1.json", 10)

    def test_a_file_is_created_once(self, place):
        assert place.create("a@1.json", b"first")
        assert not place.create("a@1.json", b"second")
        assert read(place, "a@1.json", 10) == b"first"
        place.write("a@1.json", b"third")
        assert read(place, "a@1.json", 10) == b"third"
        assert place.files() == {"a@1.json": 5}

    def test_of_many_who_create_it_one_does(self, place):
        with ThreadPoolExecutor(8) as pool:
            created = list(pool.map(lambda number: place.create("a@1.json", b"%d" % number), range(8)))
        assert created.count(True) == 1
        assert read(place, "a@1.json", 10) == b"%d" % created.index(True)

    def test_no_more_is_read_than_was_published(self, place, tmp_path):
        place.write("a@1.json", b"0123456789")
        with pytest.raises(ModelError, match="is larger than the 9 bytes that were published"):
            fetch(place, "a@1.json", 9, tmp_path / "copy")

    def test_a_folder_is_put_there(self, place, tmp_path):
        (tmp_path / "entry" / "onnx").mkdir(parents=True)
        (tmp_path / "entry" / "onnx" / "model.onnx").write_bytes(b"weights")
        place.upload(tmp_path / "entry", "a@1")
        assert read(place, "a@1/onnx/model.onnx", 10) == b"weights"
        assert place.files() == {}


@pytest.fixture
def zoo(place, winner, report):
    publish_entry({"cpu": winner}, report, place, "films")
    return place


class TestPublishing:
    def test_versions_are_published_opened_pulled_and_withdrawn(self, zoo, winner, report, tmp_path, monkeypatch):
        monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
        address = f"{zoo.address}/films"
        (winner / "config.json").write_text('{"model_type": "bert", "pad_token_id": 0, "more": 1}')
        publish_entry({"cpu": winner}, report, zoo, "films")
        assert [each.version for each in read_index(zoo).records] == ["1", "2"]
        assert not publish_entry({"cpu": winner}, report, zoo, "films")[1]
        assert verify(pull(address, tmp_path / "copy")) == 11
        assert TextModel.open(opened(address)).predict(TEXTS) == TextModel.open(tmp_path / "copy").predict(TEXTS)
        withdraw(zoo, "films@2", "a mistake")
        assert find(address).record.version == "1"
        with pytest.raises(UsageError, match=r"exists in .* is never overwritten"):
            publish_entry({"cpu": winner}, report, zoo, "films", version="1")
        page = read(zoo, "index.html", 1 << 20).decode()
        assert "films@1/report/report.html" in page
        assert "films@2/" not in page

    @pytest.mark.slow
    def test_publishers_at_once_lose_nothing(self, zoo, winner, report, tmp_path):
        import shutil

        def publish_one(number):
            folder = shutil.copytree(winner, tmp_path / f"winner-{number}")
            (folder / "config.json").write_text(f'{{"model_type": "bert", "pad_token_id": 0, "more": {number}}}')
            return publish_entry({"cpu": folder}, report, open_place(zoo.address), "films")[0]

        with ThreadPoolExecutor(4) as pool:
            records = list(pool.map(publish_one, range(4)))
        assert sorted(each.version for each in records) == ["2", "3", "4", "5"]
        assert {each.version: each.digest for each in versions_of(zoo, "films")[1:]} == {
            each.version: each.digest for each in records
        }
        assert len(read_index(zoo).records) == 5

    def test_the_commands(self, zoo, capsys, tmp_path, monkeypatch):
        monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
        assert main(["zoo", "ls", zoo.address]) == 0
        assert main(["zoo", "show", f"{zoo.address}/films"]) == 0
        assert main(["verify", f"{zoo.address}/films@1"]) == 0
        assert main(["predict", f"{zoo.address}/films@1", "good film"]) == 0
        assert main(["pull", f"{zoo.address}/films@1", str(tmp_path / "copy")]) == 0
        assert "films@1" in capsys.readouterr().out


def test_an_upload_that_ends_early_leaves_nothing_that_counts(bucket, winner, report, monkeypatch):
    place = open_place(bucket)
    put, sent = place._system.put_file, []

    def fail_at_the_third(*given, **options):
        if len(sent) == 2:
            raise ConnectionResetError("closed by peer")
        sent.append(given)
        put(*given, **options)

    monkeypatch.setattr(place._system, "put_file", fail_at_the_third)
    with pytest.raises(ModelError, match="cannot be reached: ConnectionResetError: closed by peer"):
        publish_entry({"cpu": winner}, report, place, "films")
    assert read_index(open_place(bucket)).records == []
    with pytest.raises(ModelError, match=r"films@1 was begun in .* and is not finished: it does not count"):
        find(f"{bucket}/films@1")
    monkeypatch.undo()
    record, is_new = publish_entry({"cpu": winner}, report, open_place(bucket), "films")
    assert (record.version, is_new) == ("1", True)  # the same files take the version over that was begun


def test_what_expands_is_not_expanded(s3, bucket, tmp_path):
    """A small file that its server calls compressed: it is taken as it is, and no more of it than was published."""
    import gzip

    bomb = gzip.compress(b"0" * 50_000_000)
    name = bucket.removeprefix("s3://models/")
    s3.put_object(Bucket="models", Key=f"{name}/a@1.json", Body=bomb, ContentEncoding="gzip")
    assert read(open_place(bucket), "a@1.json", len(bomb)) == bomb


def test_a_conditional_write_that_was_refused_is_no_failure(bucket, monkeypatch):
    place = open_place(bucket)
    place.create("a@1.json", b"x")
    monkeypatch.setattr(place._system, "exists", lambda *_: pytest.fail("the place itself decides"))
    assert not place.create("a@1.json", b"y")


@pytest.mark.parametrize(("error", "created"), [("Forbidden: /team412/zoo/a@412.json", None), ("412: no", False)])
def test_a_refused_write_is_known_by_its_status_not_by_its_address(error, created, monkeypatch):
    place = open_place("memory://team412/zoo")

    def pipe_file(*_, **__):
        raise OSError(error)

    monkeypatch.setattr(place._system, "pipe_file", pipe_file)
    if created is False:
        assert not place.create("a@412.json", b"x")
        return
    with pytest.raises(ModelError, match="Forbidden"):
        place.create("a@412.json", b"x")


def test_a_place_that_refuses_each_version_is_given_up(tmp_path, winner, report, monkeypatch):
    place = open_place(str(tmp_path / "zoo"))
    monkeypatch.setattr(place, "create", lambda *_: False)
    with pytest.raises(ModelError, match="does not list it"):
        publish_entry({"cpu": winner}, report, place, "films")


def test_a_place_without_conditional_writes_is_asked_before(bucket, monkeypatch):
    place = open_place(bucket)
    plain = place._system.pipe_file

    def pipe_file(path, content, **options):
        if options:
            raise NotImplementedError
        plain(path, content)

    monkeypatch.setattr(place._system, "pipe_file", pipe_file)
    assert place.create("a@1.json", b"x")
    assert not place.create("a@1.json", b"y")


def test_a_bucket_that_does_not_exist_is_one_message(s3, winner, report):
    with pytest.raises(ModelError, match=r"s3://nobodys/zoo/films@1\.json cannot be reached: .*bucket does not exist"):
        publish_entry({"cpu": winner}, report, open_place("s3://nobodys/zoo"), "films")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError("Forbidden"), "no permission"),
        (OSError("SlowDown: reduce your request rate"), "cannot be reached: OSError: SlowDown"),
        (TimeoutError("read timed out"), "cannot be reached: TimeoutError: read timed out"),
        (RuntimeError("whatever\na library raises"), "cannot be reached: RuntimeError: whatever a library raises"),
    ],
)
def test_faults_of_a_store_are_one_message(error, message, bucket, monkeypatch):
    place = open_place(bucket)

    def fail(*_, **__):
        raise error

    for name in ("ls", "open", "pipe_file"):
        monkeypatch.setattr(place._system, name, fail)
    for action in (
        place.files,
        lambda: read(place, "a", 1),
        lambda: place.create("a", b""),
        lambda: place.write("a", b""),
    ):
        with pytest.raises(ModelError, match=message) as failed:
            action()
        assert "\n" not in failed.value.message


@pytest.mark.parametrize(
    ("address", "package"), [("gs://bucket/zoo", "gcsfs"), ("az://container/zoo", "adlfs"), ("hf2://x/y", "hf2")]
)
def test_a_missing_package_is_named(address, package, capsys):
    pytest.importorskip("fsspec")
    assert main(["zoo", "ls", address]) == 2
    assert package in capsys.readouterr().err


def test_without_fsspec_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(MissingExtra) as missing:
        open_place("s3://bucket/zoo")
    assert "compress-encoders[zoo]" in missing.value.hint


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_rights_is_one_message(winner, report, tmp_path):
    (tmp_path / "zoo").mkdir(mode=0o500)
    with pytest.raises(UsageError, match="cannot be used as a zoo: Permission denied"):
        publish_entry({"cpu": winner}, report, FolderPlace(tmp_path / "zoo"), "films")


def test_rights_that_lack_are_one_message(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", str(tmp_path / "zoo"))

    monkeypatch.setattr(places, "atomic_write", refuse)
    with pytest.raises(UsageError, match="cannot be used as a zoo: Permission denied"):
        FolderPlace(tmp_path / "zoo").create("a@1.json", b"")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def serving(handler):
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def web(published):
    """A zoo at an http address."""
    with serving(partial(Quiet, directory=published.parent)) as address:
        yield address


class TestWeb:
    def test_it_is_listed_opened_and_pulled(self, web, published, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
        assert main(["zoo", "ls", web, "--format", "quiet"]) == 0
        assert capsys.readouterr().out.startswith("films-small@1\t")
        for address in (f"{web}/films-small", f"{web}/films-small@1"):
            assert TextModel.open(opened(address)).predict(TEXTS) == TextModel.open(published).predict(TEXTS)
        assert verify(pull(f"{web}/films-small", tmp_path / "copy")) == 11

    def test_it_is_downloaded_once(self, web, tmp_path, monkeypatch):
        monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
        folder = opened(f"{web}/films-small")
        monkeypatch.setattr("compress.publish.pull.fetch", lambda *_: pytest.fail("downloaded again"))
        assert opened(f"{web}/films-small@1") == folder

    def test_a_version_that_the_index_does_not_list_yet(self, web, published, tmp_path):
        (published.parent / "index.json").write_text('{"schema_version": 2}')
        assert verify(pull(f"{web}/films-small@1", tmp_path / "copy")) == 11

    def test_it_is_read_only(self, web, winner, report):
        with pytest.raises(UsageError, match="is read only"):
            publish_entry({"cpu": winner}, report, open_place(web), "films")
        with pytest.raises(UsageError, match="is read only"):
            withdraw(open_place(web), "films-small@1", "why not")

    def test_nothing_is_there(self, web):
        for source in (f"{web}/films-small@9", f"{web}/nobody", f"{web}/nothing/here"):
            with pytest.raises(ModelError, match=r"has no version '9'|there is no published model|has no published"):
                pull(source)


FAULTS = {
    "403": "HTTP Error 403",
    "404": "HTTP Error 404",
    "503": "HTTP Error 503",
    "truncated": "it ended after .* bytes",
    "slow": "arrives at less than",
    "silent": "timed out",
    "closed": "closed connection|Connection reset|IncompleteRead|without response",
    "lying": "is larger than|it ended after",
    "redirecting to a file": "redirect|not allowed|cannot be downloaded",
}


class Faulty(BaseHTTPRequestHandler):
    """Answers every request for a model with a fault, the first ``times`` times."""

    fault, times, root = "", 1 << 30, None
    asked = 0

    def log_message(self, *_):
        pass

    def do_GET(self):
        file = self.root / self.path.lstrip("/").replace("%40", "@")
        if not file.is_file():
            self.send_error(404)
            return
        content = file.read_bytes()
        if self.path.endswith("model.onnx"):
            type(self).asked += 1
            if type(self).asked <= self.times:
                self.fail(content)
                return
        self.answer(200, content)

    def answer(self, code, content, length=None):
        self.send_response(code)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)

    def fail(self, content):
        if self.fault.isdecimal():
            self.send_error(int(self.fault))
        elif self.fault == "truncated":
            self.answer(200, content[:100], len(content))
        elif self.fault == "lying":
            self.answer(200, content * 2)
        elif self.fault == "redirecting to a file":
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()
        elif self.fault == "slow":
            self.answer(200, b"", len(content))
            for byte in content:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.02)
        elif self.fault == "silent":
            time.sleep(2)


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_server_are_one_message_and_leave_nothing(fault, published, tmp_path, monkeypatch):
    monkeypatch.setattr(places, "PAUSE", 0.01)
    monkeypatch.setattr(places, "TIMEOUT", 0.3)
    handler = type("Handler", (Faulty,), {"fault": fault, "root": published.parent, "asked": 0})
    with serving(handler) as web, pytest.raises(CompressError, match=FAULTS[fault]) as failed:
        pull(f"{web}/films-small", tmp_path / "copy")
    assert "\n" not in failed.value.message
    assert not (tmp_path / "copy").exists()
    assert not [path for path in tmp_path.iterdir() if ".new-" in path.name]


@pytest.mark.parametrize("fault", ["503", "truncated", "closed"])
def test_what_passes_is_tried_again(fault, published, tmp_path, monkeypatch):
    monkeypatch.setattr(places, "PAUSE", 0.01)
    handler = type("Handler", (Faulty,), {"fault": fault, "times": 2, "root": published.parent, "asked": 0})
    with serving(handler) as web:
        assert verify(pull(f"{web}/films-small", tmp_path / "copy")) == 11
    assert handler.asked == 3


def test_the_kinds_of_addresses():
    assert isinstance(open_place("zoo"), FolderPlace)
    assert isinstance(open_place("file:///zoo"), FolderPlace)
    assert isinstance(open_place("https://host/zoo/"), WebPlace)
    assert isinstance(open_place("memory://zoo"), CloudPlace)
