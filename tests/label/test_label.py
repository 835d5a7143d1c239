"""Labelling by a local service: files, cache, limit, resuming, secrets."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from compress.cli import main
from compress.console import Console
from compress.errors import CompressError, DataError, UsageError
from compress.label.label import dry_run
from compress.label.service_info import read_service
from compress.label.spending import LimitReached
from compress.recipe.load import load_recipe
from tests.command_process import run_script
from tests.label.chat_server import KEY, answer, by_word, failure, in_turn, slow
from tests.label.conftest import TEXTS

PRICES = "prices={input: 1000, output: 2000}"
"""40 tokens and 5 tokens: 0.05 for each answer of the server."""


def test_rows_are_labelled_and_some_held_back(labelling, server):
    info = labelling.run()
    assert labelling.written == {text: "good" if "good" in text else "bad" for text in TEXTS}
    assert (info.texts, info.unanswered, len(server.requests)) == (12, 0, 12)
    assert 0 < info.test_rows < 12
    assert len(labelling.read("test.jsonl")) == info.test_rows
    assert "soft_labels" not in labelling.read("train.jsonl")[0]
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert read_service(labelling.target) == info


def test_several_samples_give_soft_labels(labelling, server):
    server.reply = in_turn(*[answer('{"label": "good"}')] * 3, answer('{"label": "bad"}'))
    labelling.rows(["a film"])
    info = labelling.run("samples=4", "concurrency=1", "held_out=0.0")
    (row,) = labelling.read("train.jsonl")
    assert row == {"review": "a film", "label": "good", "soft_labels": {"bad": 0.25, "good": 0.75}}
    assert info.self_agreement == pytest.approx(0.5)
    assert {request["temperature"] for request in server.requests} == {1.0}


def test_the_written_recipe_reads_the_files(labelling):
    labelling.run("samples=2")
    recipe = load_recipe(labelling.target / "recipe.yaml")
    assert recipe.task.soft_labels == "soft_labels"
    assert recipe.task.labels == ("bad", "good")
    assert Path(recipe.task.data.train).is_file()


def test_a_written_recipe_names_test_rows_only_where_there_are_some(labelling):
    labelling.rows(TEXTS[:1])
    assert labelling.run("held_out=0.1").test_rows == 0
    assert load_recipe(labelling.target / "recipe.yaml").task.data.test is None
    with pytest.raises(DataError, match="all 1 rows that are answered are held back"):
        labelling.run("held_out=0.999")


def test_no_text_is_paid_for_twice(labelling, server):
    labelling.rows([*TEXTS, *TEXTS])
    assert labelling.run().texts == 24
    assert len(server.requests) == 12
    first = labelling.read("train.jsonl")
    labelling.run("held_out=0.3")
    assert len(server.requests) == 12
    assert labelling.read("train.jsonl") == first


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_equal_texts_in_flight_are_asked_about_once(labelling, server, concurrency):
    labelling.rows([text for text in TEXTS[:4] for _ in range(3)])
    server.reply = slow(0.01)
    labelling.run("samples=3", f"concurrency={concurrency}")
    assert len(server.requests) == 4 * 3


@pytest.mark.parametrize(
    "change", ["endpoint.model=larger", "temperature=0.5", "prompt=Is it good?", "task.labels=[good, bad]"]
)
def test_another_question_is_asked_again(labelling, server, change):
    labelling.run()
    labelling.run(change)
    assert len(server.requests) == 24


def test_what_another_command_has_asked_meanwhile_is_not_asked_again(labelling, server):
    other = threading.Event()

    def reply(request):
        if not other.is_set():  # the first request of the first command, which the second overtakes
            other.set()
            labelling.run("concurrency=1")
        return by_word(request)

    server.reply = reply
    assert labelling.run("concurrency=1", "endpoint.timeout=60", PRICES).cost == pytest.approx(13 * 0.05)
    assert len(server.requests) == 13


def test_dry_run_sends_nothing_and_then_knows_the_tokens(labelling, server):
    expected = dry_run(labelling.load(PRICES), Console("quiet"))
    assert (expected.requests, expected.spent, len(server.requests)) == (12, 0.0, 0)
    assert "characters a token" in expected.text
    assert "the limit will stop it" in dry_run(labelling.load(PRICES, "limit=0.1"), Console("quiet")).text
    assert "the limit will stop it" not in dry_run(labelling.load(PRICES, "limit=100"), Console("quiet")).text
    labelling.run("task.data.limit=4")
    expected = dry_run(labelling.load(PRICES), Console("quiet"))
    assert (expected.requests, expected.answered) == (8, 4)
    assert expected.cost == pytest.approx(8 * 0.05, rel=0.1)
    assert "measured on 4 answers" in expected.text


def test_the_limit_is_not_exceeded_and_a_higher_one_goes_on(labelling, server):
    most = "answer_tokens=5"
    with pytest.raises(LimitReached, match=r"the limit of 0\.6 is reached") as stopped:
        labelling.run(PRICES, "limit=0.6", most)
    done = len(server.requests)
    assert 0 < done < 12
    assert done * 0.05 <= 0.6
    assert f"{done} of 12 answers are stored, {done * 0.05:.4f} spent" in stopped.value.message
    assert "--set limit=1.2" in stopped.value.hint
    assert not labelling.target.exists()
    info = labelling.run(answered=True)
    assert (info.texts, info.unanswered, len(server.requests)) == (done, 12 - done, done)
    info = labelling.run(PRICES, "limit=5", most)
    assert (info.texts, len(server.requests)) == (12, 12)
    assert info.cost == pytest.approx(12 * 0.05)
    assert info.cost_of_million == pytest.approx(1e6 * 0.05)


def test_no_more_requests_at_once_than_the_recipe_allows(labelling, server):
    server.reply = slow(0.05)
    labelling.run("concurrency=3")
    assert server.most == 3


def test_requests_a_minute(labelling, server):
    labelling.run("requests_per_minute=60")
    waits = [seconds for seconds in labelling.waits if seconds > 0]
    assert max(waits) > 10
    assert len(server.requests) == 12


CHILD = """
import signal, sys
from compress.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in children of a background job
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(labelling, server):
    server.reply = slow(0.1)
    labelling.load()
    command = [sys.executable, "-c", CHILD, "label", str(labelling.file), "--to", str(labelling.target)]
    with subprocess.Popen([*command, "--set", "concurrency=1"], stderr=subprocess.DEVNULL) as process:
        while len(server.requests) < 4:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    asked = len(server.requests)
    assert asked < 12
    assert not labelling.target.exists()
    server.reply = by_word
    labelling.run()
    assert len(server.requests) <= 13  # the one that was under way is lost
    assert len(labelling.written) == 12


def test_a_killed_run_counts_the_request_that_was_under_way(labelling, server):
    money = ["concurrency=1", "prices={input: 0, output: 1000}", "answer_tokens=100"]
    server.reply = lambda request: slow(5)(request) if len(server.requests) == 4 else by_word(request)
    labelling.load()
    sets = [word for change in money for word in ("--set", change)]
    command = [sys.executable, "-c", CHILD, "label", str(labelling.file), "--to", str(labelling.target), *sets]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while len(server.requests) < 4:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    expected = dry_run(labelling.load(*money), Console("quiet"))
    assert (expected.answered, expected.lost, expected.spent) == (3, 1, pytest.approx(3 * 0.005 + 0.1))
    assert "1 lost answer at the highest price" in expected.text


def test_fewer_samples_do_not_lower_what_was_spent(labelling, server):
    server.reply = lambda request: answer('{"label": "good"}')
    assert labelling.run(PRICES, "samples=3", "temperature=1").cost == pytest.approx(36 * 0.05)
    info = labelling.run(PRICES, "samples=1", "temperature=1")
    assert len(server.requests) == 36
    assert info.cost == pytest.approx(36 * 0.05)
    assert info.cost_of_million == pytest.approx(1e6 * 0.05)


def test_blank_rows_are_not_sent(labelling, server, capsys):
    labelling.rows([*TEXTS[:2], "", " \n", *TEXTS[2:]])
    info = labelling.run()
    assert (info.texts, info.blank, len(server.requests)) == (12, 2, 12)
    assert "2 blank rows not sent" in info.text
    assert main(["label", str(labelling.file), "--dry-run"]) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "2 rows left out, such as: " in err
    assert "rows.jsonl, row 3 (line 3): there is no text." in err


def test_data_of_blank_rows_alone(labelling):
    labelling.rows(["", " "])
    with pytest.raises(DataError, match="no row that can be labelled"):
        labelling.run()


@pytest.mark.parametrize("flags", [["--dry-run", "--answered"], ["--answered", "--retry-refused"]])
def test_flags_that_contradict_are_refused(labelling, server, capsys, flags):
    labelling.load()
    with pytest.raises(SystemExit) as ended:
        main(["label", str(labelling.file), *flags])
    assert ended.value.code == 2
    assert f"{flags[1]}: not allowed with argument {flags[0]}" in capsys.readouterr().err
    assert not server.requests


@pytest.mark.slow
def test_an_interrupted_run_keeps_the_answers_that_are_under_way(labelling, server):
    server.reply = slow(0.3)
    labelling.load()
    command = [sys.executable, "-c", CHILD, "label", str(labelling.file), "--to", str(labelling.target)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while len(server.requests) < 4:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "every answer is stored" in err
    server.reply = by_word
    labelling.run()
    assert len(server.requests) == 12


def test_rows_are_checked_before_anything_is_sent(labelling, server, capsys):
    with (labelling.folder / "rows.jsonl").open("a") as stream:
        stream.write('{"review": 3}\n')
    with pytest.raises(CompressError, match="row 13"):
        labelling.run()
    assert not server.requests
    assert labelling.run("task.data.bad_rows=skip").texts == 12
    assert main(["label", str(labelling.file), "--set", "task.data.bad_rows=skip", "--dry-run"]) == 0
    assert "1 row left out, such as: " in capsys.readouterr().err


def test_a_foreign_folder_is_not_replaced(labelling, server):
    labelling.target.mkdir()
    (labelling.target / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="was not written by compress label"):
        labelling.run()
    assert not server.requests


def test_a_folder_that_cannot_be_created_is_found_before_anything_is_sent(labelling, server):
    labelling.target = labelling.folder / "rows.jsonl" / "out"
    with pytest.raises(UsageError, match=r"out cannot be written: .*rows\.jsonl is a file, expected a folder"):
        labelling.run()
    assert not server.requests


def test_a_missing_key_is_reported_by_its_variable(labelling, monkeypatch):
    monkeypatch.delenv("SERVICE_KEY")
    with pytest.raises(UsageError, match="SERVICE_KEY is not set"):
        labelling.run()


LEAKS = {
    "rejected": failure(401, f"Incorrect API key provided: {KEY}"),
    "failing": failure(500, f"key {KEY} broke the server"),
    "unknown model": failure(404, f"no model for {KEY}"),
    "refused": failure(400, f"bad request by {KEY}"),
    "malformed": (200, {}, f'{{"key": "{KEY}"'.encode()),
    "repeated": answer(f'{{"label": "{KEY}"}}'),
}


@pytest.mark.slow
@pytest.mark.parametrize("debug", ["0", "1"])
@pytest.mark.parametrize("reply", LEAKS.values(), ids=LEAKS)
def test_the_key_is_never_shown_nor_stored(labelling, server, reply, debug):
    """Not even by a service that repeats it, in a traceback or in the logs of the client."""
    server.reply = in_turn(by_word, *[reply] * 40)
    labelling.load()
    code = (
        "import logging, sys\nlogging.basicConfig(level=logging.DEBUG)\nimport compress.label.ask_service as pace\n"
        "pace.FIRST_WAIT = 0.001\nfrom compress.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    environment = {"COMPRESS_DEBUG": debug, "OPENAI_LOG": "debug"}
    words = ["label", labelling.file, "--to", labelling.target]
    done = run_script(code, *words, environment=environment, timeout=60)
    assert len(server.requests) > 1
    assert KEY not in done.stdout + done.stderr
    for path in labelling.folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_the_command_prints_what_it_did(labelling, server, capsys):
    labelling.load()
    assert main(["label", str(labelling.file), "--to", str(labelling.target), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["service"]["texts"] == 12
    assert main(["label", str(labelling.file), "--dry-run"]) == 0
    assert "0 requests, 12 answers cached" in capsys.readouterr().out
