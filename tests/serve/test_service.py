"""Limits, batches, bad input, the key, several models, watching, and the end."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection

import httpx2 as httpx
import numpy as np
import pytest

import compress
from compress.cli import main
from compress.errors import ModelError, ParityMissed, UsageError
from compress.runtime.predictor import ONE_THREAD
from compress.serve.served_model import BatchTimes, measure_times, open_served
from compress.serve.server import _state, named_models, watch
from tests.serve.conftest import lines, serving

PATH = "/models/films/predict"


@pytest.fixture
def running(model):
    with serving({"films": model}) as each:
        yield each


BAD = {
    "no JSON": (b"{", 400, "it is not JSON"),
    "nothing": (b"", 400, "it is empty"),
    "no object": (b"[1]", 422, "the file"),
    "no texts": (b"{}", 422, "texts is missing"),
    "a number": (b'{"texts": [5]}', 422, "texts"),
    "no text": (b'{"texts": []}', 422, "texts"),
    "another key": (b'{"texts": ["a"], "txt": 1}', 422, "txt"),
    "no UTF-8": (b'{"texts": ["\xff"]}', 400, "it is not JSON"),
    "deep": (b'{"texts": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "it is not JSON"),
    "many rows": (json.dumps({"texts": ["a"] * 100_000}).encode(), 413, "may hold 1,024 texts"),
    "a large body": (b'{"texts": ["' + b"a" * 10_000_000 + b'"]}', 413, "the body may have"),
    "a long text": (b'{"texts": ["' + b"a" * 2_000_000 + b'"]}', 413, "2,000,000 characters"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_bodies(name, service_of):
    content, status, message = BAD[name]
    each = service_of("classification")
    answer = each.client.post("/models/classification/predict", content=content)
    assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text[:300]
    good = each.client.post("/models/classification/predict", json={"texts": ["good"]})
    assert good.status_code == 200


@pytest.mark.parametrize("name", ["other", "../../etc/passwd", "%2e%2e%2fx", "films%00", "a" * 5000])
def test_unknown_names(name, service_of):
    answer = service_of("classification").client.post(f"/models/{name}/predict", json={"texts": ["a"]})
    assert answer.status_code == 404
    assert "error" in answer.json()
    assert len(answer.text) < 1000


def test_a_wrong_method(service_of):
    assert service_of("classification").client.get("/predict").status_code == 405


def test_several_models_are_named(model, exported):
    with serving({"films": model, "vectors": exported("retrieval")}) as each:
        assert each.client.post("/models/films/predict", json={"texts": ["a"]}).status_code == 200
        assert each.client.post("/models/vectors/predict", json={"texts": ["a"]}).status_code == 200
        answer = each.client.post("/predict", json={"inputs": "a"})
        assert answer.status_code == 400
        assert "films, vectors" in answer.json()["error"]
        body = {"input": "a", "model": "vectors"}
        assert each.client.post("/v1/embeddings", json=body).status_code == 200
        assert [every["id"] for every in each.client.get("/models").json()["data"]] == ["films", "vectors"]


def test_names_of_models(tmp_path):
    winner = tmp_path / "runs" / "films" / "winner" / "cpu"
    assert named_models([str(winner), "b=c"]) == {"films": str(winner), "b": "c"}
    assert named_models(["zoo/topics@2", "s3://host/zoo/pairs"]) == {
        "topics": "zoo/topics@2",
        "pairs": "s3://host/zoo/pairs",
    }
    with pytest.raises(UsageError, match="would both be called a"):
        named_models(["x/a", "y/a"])
    with pytest.raises(UsageError, match="the name of a model may hold"):
        named_models(["../a=b"])


def test_the_key(model):
    with serving({"films": model}, key="secret") as each:
        body = {"texts": ["good"]}
        assert each.client.post(PATH, json=body).status_code == 401
        assert each.client.post(PATH, json=body, headers={"Authorization": "Bearer other"}).status_code == 401
        assert (
            each.client.post(PATH, json=body, headers={"Authorization": "Bearer \xe9".encode("latin-1")}).status_code
            == 401
        )
        assert each.client.post(PATH, json=body, headers={"Authorization": "Bearer secret"}).status_code == 200
        assert each.client.get("/openapi.json").status_code == 401
        for path in ("/health/live", "/health/ready", "/metrics", "/v2/health/ready"):
            assert each.client.get(path).status_code == 200


def test_the_log_has_no_texts(running):
    running.client.post(PATH, json={"texts": ["a very secret text"]})
    deadline = time.monotonic() + 5
    while not lines(running.log.getvalue()) and time.monotonic() < deadline:
        time.sleep(0.01)
    [line] = lines(running.log.getvalue())
    assert (line["method"], line["path"], line["status"]) == ("POST", PATH, 200)
    assert "secret" not in running.log.getvalue()


def test_metrics(running):
    running.client.post(PATH, json={"texts": ["good", "bad"]})
    running.client.post(PATH, content=b"{")
    text = running.client.get("/metrics").text
    assert 'compress_rows_total{model="films"} 2.0' in text
    assert 'compress_refusals_total{reason="body"} 1.0' in text
    assert 'compress_requests_total{path="/models/{name}/predict",status="200"} 1.0' in text
    for stage in ("queue", "tokenize", "model", "whole"):
        assert f'compress_seconds_count{{model="films",stage="{stage}"}}' in text
    assert 'compress_queue_rows{model="films"} 0.0' in text


def test_many_callers_get_their_own_answers(running, model):
    texts = [f"{'good ' * (number % 7)}bad plot" for number in range(200)]
    expected = [row["probability"] for row in compress.open(model).predict(texts, batch=1)]
    with ThreadPoolExecutor(16) as pool:
        found = list(
            pool.map(lambda text: running.client.post(PATH, json={"texts": [text]}).json()["answers"][0], texts)
        )
    assert np.allclose([each["probability"] for each in found], expected, atol=1e-5)


def test_a_variant_whose_answers_depend_on_the_batch_runs_rows_alone(exported):
    folder = exported("classification", "onnx-int8")
    assert open_served("films", folder, ONE_THREAD).times is None
    texts = ["good", "so very dull a plot", "a fine film"]
    expected = [row["probability"] for row in compress.open(folder).predict(texts, batch=1)]
    with serving({"films": folder}) as each:
        found = each.client.post(PATH, json={"texts": texts}).json()["answers"]
        assert [answer["probability"] for answer in found] == expected
        assert "rows run one by one" in each.service.served("films").describe()


def test_batches_are_timed_with_pieces_of_a_text(model, monkeypatch):
    opened, seen = compress.open(model), set()
    arrays = type(opened).arrays

    def seeing(self, examples):
        seen.update(examples[0]["input_ids"])
        return arrays(self, examples)

    monkeypatch.setattr(type(opened), "arrays", seeing)
    measure_times(opened)
    assert len(seen - {opened.tokens.pad_id}) > 3


def test_windows_of_a_long_text_run_alone_there(exported, tmp_path):
    """Whatever the batch at which the variant was scored: answers are those of `predict --batch 1`."""
    folder = tmp_path / "model"
    shutil.copytree(exported("question_answering", "onnx-int8"), folder)
    info = json.loads((folder / "compress.json").read_text())
    info["variant"]["scored_batch"] = 8
    (folder / "compress.json").write_text(json.dumps(info))
    given = ("is it good", "a fine film of so dull a plot " * 12)
    (expected,) = compress.open(folder).predict([given], batch=1)
    with serving({"films": folder}) as each:
        (found,) = each.client.post(PATH, json={"texts": [list(given)]}).json()["answers"]
    assert {name: found[name] for name in expected} == expected


def test_rows_are_joined_where_that_is_faster():
    cheap = BatchTimes((1, 2, 4), (8, 32), np.array([[1.0, 2.0], [1.1, 2.2], [1.2, 2.4]]))
    dear = BatchTimes((1, 2, 4), (8, 32), np.array([[1.0, 2.0], [2.2, 4.4], [4.8, 9.6]]))
    rows = [(1, 8)] * 4
    assert cheap.batch(rows) == [0, 1, 2, 3]
    assert dear.batch(rows) == [0]
    assert cheap.batch([(9, 8), (1, 8)]) == [0]
    steep = BatchTimes((1, 2, 4), (8, 32), np.array([[1.0, 4.0], [1.5, 6.0], [2.5, 10.0]]))
    assert steep.batch([(1, 30), (1, 8), (1, 31), (1, 9)]) == [0, 2]  # padding a short one costs more than it saves
    assert steep(3, 20) == pytest.approx((steep(2, 20) + steep(4, 20)) / 2)
    assert steep(8, 40) == 2 * steep(4, 32)


def test_while_too_many_rows_wait_requests_are_refused(model):
    with serving({"films": model}, queue=2) as each, ThreadPoolExecutor(1) as pool:
        runs, decode = threading.Event(), each.service.served("films").model.decode
        object.__setattr__(
            each.service.served("films").model, "decode", lambda examples: runs.wait(10) and decode(examples)
        )
        first = pool.submit(each.client.post, PATH, json={"texts": ["good"] * 3})  # more than may wait
        while 'compress_queue_rows{model="films"} 3.0' not in each.client.get("/metrics").text:
            time.sleep(0.01)
        refused = each.client.post(PATH, json={"texts": ["good"]})
        runs.set()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert len(first.result().json()["answers"]) == 3
        assert each.client.post(PATH, json={"texts": ["good"]}).status_code == 200


def test_a_client_that_is_slow_gets_a_408(model):
    with serving({"films": model}, receive=0.5) as each, socket.create_connection(("127.0.0.1", each.port)) as slow:
        slow.sendall(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        start = time.monotonic()
        slow.settimeout(10)
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - start < 5
        assert each.client.post(PATH, json={"texts": ["good"]}).status_code == 200


def test_a_connection_without_a_request_is_closed_silently(model):
    with serving({"films": model}, receive=0.3) as each, socket.create_connection(("127.0.0.1", each.port)) as idle:
        idle.settimeout(10)
        assert idle.recv(1000) == b""


def test_a_client_that_takes_no_answer_is_left(model):
    with serving({"films": model}, send=0.5) as each, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        each.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        slow.connect(("127.0.0.1", each.port))
        slow.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 20)
        assert wait_until(lambda: each.server.server_state.connections, 5)
        assert wait_until(lambda: not each.server.server_state.connections, 10)
        assert each.client.post(PATH, json={"texts": ["good"]}).status_code == 200


def wait_until(holds, seconds):
    """Return whether a condition comes to hold."""
    deadline = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(held)


def test_what_is_not_answered_when_the_time_to_end_is_over(model):
    with serving({"films": model}, ending=1) as each, ThreadPoolExecutor(1) as pool:
        runs, starts = threading.Event(), threading.Event()
        served, decode = each.service.served("films").model, each.service.served("films").model.decode

        def late(examples):
            starts.set()
            runs.wait(20)
            return decode(examples)

        object.__setattr__(served, "decode", late)
        answer = pool.submit(each.client.post, PATH, json={"texts": ["good"] * 200})
        assert starts.wait(10)
        each.server.should_exit = True
        assert answer.result(10).status_code == 503
        runs.set()


@pytest.mark.parametrize("error", [BrokenPipeError, ValueError])
def test_a_log_that_nobody_reads_loses_no_request(error, running, monkeypatch):
    def lost(_):
        raise error

    monkeypatch.setattr(running.log, "write", lost)
    kept = HTTPConnection("127.0.0.1", running.port, timeout=10)
    for _ in range(3):
        kept.request("POST", PATH, json.dumps({"texts": ["good"]}))
        assert kept.getresponse().read().startswith(b'{"answers"')
    kept.close()


def test_connections_that_are_half_closed_or_left(running):
    for content in (b"", b"POST", b"\x00\xff\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"):
        connection = socket.create_connection(("127.0.0.1", running.port))
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        connection.close()
    assert running.client.post(PATH, json={"texts": ["good"]}).status_code == 200


def test_a_damaged_model_never_gets_ready(model, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    (folder / "model.onnx").write_bytes(b"x")
    with pytest.raises(ModelError, match="it is empty, truncated, or not a model"):
        open_served("films", folder, ONE_THREAD)


def test_a_model_that_does_not_repeat_its_golden_outputs(exported, tmp_path):
    from tests.variant_builder import add_to_logits

    onnx = pytest.importorskip("onnx")
    folder = tmp_path / "model"
    shutil.copytree(exported(), folder)
    if not (folder / "golden.safetensors").exists():
        pytest.skip("this fixture has no golden outputs")
    proto = onnx.load(folder / "model.onnx")
    onnx.save(add_to_logits(proto, [3.0, -3.0]), folder / "model.onnx")
    with pytest.raises(ParityMissed):
        open_served("films", folder, ONE_THREAD)


def test_watching_replaces_a_model_without_a_lost_request(exported, tmp_path, monkeypatch):
    import asyncio

    from compress.console import Console
    from compress.serve import server

    monkeypatch.setattr(server, "WATCH_SECONDS", 0.05)
    folder = tmp_path / "model"
    shutil.copytree(exported("classification"), folder)
    with serving({"films": folder}) as each:
        loop = asyncio.new_event_loop()
        task = loop.create_task(
            watch(
                each.service,
                {"films": str(folder)},
                {"films": _state(str(folder))},
                ONE_THREAD,
                Console("human", err=each.log),
            )
        )
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        statuses = []
        stop = threading.Event()

        def call():
            while not stop.is_set():
                statuses.append(each.client.post(PATH, json={"texts": ["good"]}).status_code)

        caller = threading.Thread(target=call)
        caller.start()
        time.sleep(0.3)
        (folder / "compress.json").write_text("{")  # a folder in the middle of a change
        time.sleep(0.4)
        shutil.copytree(exported("multi_label"), tmp_path / "next")
        shutil.rmtree(folder)
        (tmp_path / "next").rename(folder)
        deadline = time.monotonic() + 20
        while each.service.served("films").model.task.kind != "multi_label" and time.monotonic() < deadline:
            time.sleep(0.05)
        stop.set()
        caller.join()
        task.add_done_callback(lambda _: loop.stop())
        loop.call_soon_threadsafe(task.cancel)
        thread.join(5)
        loop.close()
        assert set(statuses) == {200}
        assert each.service.served("films").model.task.kind == "multi_label"
        assert "stays as it is" in each.log.getvalue()


@contextmanager
def command(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KEY": "secret"}
    words = [sys.executable, "-m", "compress", "serve", *map(str, arguments)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def address_of(process):
    """Return where it listens, from the line that it shows."""
    for line in process.stderr:
        if "curl " in line:
            return line.split()[1].partition("/models")[0]
    raise AssertionError("it ended")


@pytest.mark.slow
def test_the_command_answers_what_it_accepted_and_ends_with_0(model):
    headers = {"Authorization": "Bearer secret"}
    body = {"texts": ["so very dull a plot"] * 500}
    words = (f"films={model}", "--port", "0", "--key-env", "KEY", "--queue", "4096")
    with command(*words) as process, ThreadPoolExecutor(8) as pool:
        address = address_of(process)
        waiting = [pool.submit(httpx.post, address + PATH, json=body, headers=headers, timeout=30) for _ in range(6)]
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        answered = [each.result() for each in waiting if each.exception() is None]
        assert answered
        assert {each.status_code for each in answered} <= {200, 503}
        assert all(len(each.json()["answers"]) == 500 for each in answered if each.status_code == 200)
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["MODEL", "b=MODEL", "b=MODEL"], 2, "would both be called b"),
        (["nowhere"], 1, "there is no model folder at nowhere"),
        (["MODEL", "--key-env", "NO_SUCH_KEY"], 2, "there is no such environment variable"),
        (["MODEL", "--host", "no.such.host.invalid"], 2, "cannot be listened at"),
        (["MODEL", "--host", "a" * 64], 2, "cannot be listened at: no host has such a name"),
        (["MODEL", "--key-env", "NO_KEY"], 2, "holds characters that no key has"),
    ],
)
def test_what_cannot_be_served(arguments, code, message, model, capsys, monkeypatch):
    monkeypatch.setenv("NO_KEY", "schlüssel")
    words = [word.replace("MODEL", str(model)) for word in arguments]
    assert main(["serve", *words, *([] if "--host" in words else ["--port", "0"])]) == code
    assert message in capsys.readouterr().err


def test_a_port_in_use(model, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", str(model), "--port", str(taken.getsockname()[1])]) == 2
    assert "--port 0 takes a free one" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--port", "x"], ["--port", "70000"], ["--max-wait", "-1"], ["--max-wait", "nan"]])
def test_wrong_options(option, capsys):
    with pytest.raises(SystemExit):
        main(["serve", "a", *option])
    assert "expected" in capsys.readouterr().err


def test_threads_share_an_opened_model(exported):
    for kind in ("classification", "retrieval", "question_answering"):
        opened = compress.open(exported(kind))
        given = [("is it good", "the plot is dull"), ("good", "a fine film of it")]
        texts = given if kind == "question_answering" else [text for _, text in given]
        expected = opened.predict(texts)
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _, opened=opened, texts=texts: opened.predict(texts), range(64)))
        assert all(each == expected for each in found)


def test_without_the_extra(model, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(model)]) == 1
    assert "pip install 'compress-encoders[serve]'" in capsys.readouterr().err


def test_watching_follows_the_newest_version(exported, tmp_path, monkeypatch):
    """A name without a version means the newest: a newer one is served, and after its withdrawal the one before."""
    import asyncio

    from compress.console import Console
    from compress.publish.places import FolderPlace
    from compress.publish.pull import opened
    from compress.publish.records import Record
    from compress.publish.verify import DIGESTS_FILE, write_digests
    from compress.publish.zoo import withdraw
    from compress.serve import server
    from compress.storage.file_digests import file_digest

    monkeypatch.setattr(server, "WATCH_SECONDS", 0.05)
    place = FolderPlace(tmp_path / "zoo")

    def publish(kind, version):
        folder = shutil.copytree(exported(kind), place.root / f"films@{version}")
        write_digests(folder)
        record = Record(
            name="films",
            version=version,
            published=f"2026-11-2{version}T00:00:00Z",
            digest=file_digest(folder / DIGESTS_FILE),
            variants=({"path": ".", "variant": "onnx-fp32"},),
        )
        place.create(record.file, record.content())

    publish("classification", "1")
    source = f"{place.root}/films"
    with serving({"films": opened(source)}) as each:
        loop = asyncio.new_event_loop()
        task = loop.create_task(
            watch(
                each.service, {"films": source}, {"films": _state(source)}, ONE_THREAD, Console("human", err=each.log)
            )
        )
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()

        def becomes(kind):
            deadline = time.monotonic() + 20
            while each.service.served("films").model.task.kind != kind and time.monotonic() < deadline:
                time.sleep(0.05)
            assert each.service.served("films").model.task.kind == kind
            assert each.client.post(PATH, json={"texts": ["good"]}).status_code == 200

        time.sleep(0.2)
        publish("multi_label", "2")
        becomes("multi_label")
        withdraw(place, "films@2", "wrong labels")
        becomes("classification")
        task.add_done_callback(lambda _: loop.stop())
        loop.call_soon_threadsafe(task.cancel)
        thread.join(5)
        loop.close()
