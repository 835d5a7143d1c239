"""The cache of answers: another connection reads it at once, what it counts, and what it never forgets."""

import sqlite3
import subprocess
import sys

import pytest

from compress.errors import CompressError
from compress.label.answer_cache import Answer, AnswerCache, Wanted, answers_file, request_key

GOOD, NONE = Answer("good", True, 40, 5, True), Answer("neither", False, 40, 9, True)
CUT_OFF = Answer("", False, 40, 256, True, cut_off_at=256)
WANTED = Wanted(samples=4, attempts=2, answer_tokens=256)


@pytest.fixture
def cache():
    made = AnswerCache(answers_file(), WANTED)
    yield made
    made.close()


def add(cache, key, sample, answer):
    cache.add(cache.begin_request(key, 100, 256), sample, 100, answer)


def missing(wanted, key):
    cache = AnswerCache(answers_file(), wanted)
    samples = cache.missing_samples(key)
    cache.close()
    return samples


def test_answers_are_read_by_another_connection_at_once(cache):
    add(cache, "a", 0, GOOD)
    other = AnswerCache(answers_file(), WANTED)
    assert other.valid_answers("a") == ["good"]
    other.close()


def test_of_two_commands_that_ask_at_once_the_first_answer_counts_and_both_were_paid_for(cache):
    cache.add_text("a", 100)
    for answer in (NONE, GOOD, Answer("bad", True, 40, 5, True)):
        add(cache, "a", 0, answer)
    assert cache.valid_answers("a") == ["good"]
    used = cache.usage()
    assert (used.answers, used.valid, used.lost) == (1, 2, 0)
    assert (used.input_tokens, used.output_tokens) == (120, 19)


def test_samples_that_are_missing(cache):
    add(cache, "a", 0, GOOD)
    add(cache, "a", 1, NONE)
    add(cache, "a", 2, NONE)
    add(cache, "a", 2, NONE)
    assert cache.missing_samples("a") == [1, 3]
    assert missing(Wanted(2, 2, 256), "b") == [0, 1]


def test_an_answer_that_was_cut_off_is_asked_for_again_with_more_tokens_alone(cache):
    add(cache, "a", 0, CUT_OFF)
    assert cache.was_cut_off("a")
    assert missing(Wanted(1, 9, 256), "a") == []
    assert missing(Wanted(1, 2, 257), "a") == [0]


def test_a_refused_text_is_finished_until_it_is_forgotten(cache):
    for key in ("a", "b"):
        cache.add_text(key, 100)
        cache.add_refusal(key, "too long")
    add(cache, "a", 0, GOOD)
    assert cache.missing_samples("a") == []
    used = cache.usage()
    assert (used.answers, used.finished, used.refused) == (1, 8, 2)
    assert cache.example_refusal() == "too long"
    cache.forget_refusals()
    assert cache.missing_samples("a") == [1, 2, 3]


def test_only_the_texts_of_the_command_count_and_each_once(cache):
    for key in ("a", "b"):
        add(cache, key, 0, NONE)
        add(cache, key, 0, GOOD)
    cache.add_text("a", 100)
    cache.add_text("a", 100)
    cache.add_text("c", 50)
    assert cache.count_texts() == (2, 150)
    used = cache.usage()
    assert (used.answers, used.finished, used.input_tokens, used.output_tokens) == (1, 1, 80, 14)
    assert used.characters == 200
    assert cache.example_invalid() == "neither"


def test_samples_that_are_not_wanted_any_more_were_paid_for(cache):
    cache.add_text("a", 100)
    add(cache, "a", 0, GOOD)
    add(cache, "a", 7, GOOD)
    used = cache.usage()
    assert (used.answers, used.valid, used.input_tokens) == (1, 2, 80)


def test_requests_without_an_answer_count_at_their_highest_price(cache):
    cache.add_text("a", 100)
    cache.begin_request("a", 100, 256)
    cache.cancel_request(cache.begin_request("a", 100, 256))
    used = cache.usage()
    assert (used.lost, used.lost_input_tokens, used.lost_output_tokens) == (1, 100, 256)


def test_a_key_depends_on_every_part():
    assert request_key(["a", "b"]) != request_key(["ab", ""])


def test_a_killed_writer_leaves_all_it_wrote(cache):
    code = (
        "import os, signal\nfrom compress.label.answer_cache import *\n"
        "cache = AnswerCache(answers_file(), Wanted(500, 1, 9))\n"
        "for number in range(500):\n"
        "    cache.add(cache.begin_request('a', 9, 9), number, 9, Answer('good', True, 1, 1, True))\n"
        "cache.begin_request('a', 9, 9)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    cache.add_text("a", 100)
    used = cache.usage()
    assert (used.valid, used.lost) == (500, 1)


def test_a_file_of_the_first_version_is_kept(tmp_path):
    rows = sqlite3.connect(tmp_path / "old.sqlite")
    rows.execute(
        "CREATE TABLE answers (key TEXT, sample INTEGER, attempt INTEGER, answer TEXT, valid INTEGER, "
        "characters INTEGER, input_tokens INTEGER, output_tokens INTEGER, stated INTEGER, "
        "PRIMARY KEY (key, sample, attempt)) WITHOUT ROWID"
    )
    rows.execute("INSERT INTO answers VALUES ('a', 0, 0, 'good', 1, 100, 40, 5, 1)")
    rows.commit()
    rows.close()
    for _ in range(2):
        cache = AnswerCache(tmp_path / "old.sqlite", WANTED)
        assert cache.valid_answers("a") == ["good"]
        add(cache, "b", 0, CUT_OFF)
        cache.close()


def test_a_file_of_a_later_version_is_refused(tmp_path):
    rows = sqlite3.connect(tmp_path / "new.sqlite")
    rows.execute("PRAGMA user_version = 99")
    rows.close()
    with pytest.raises(CompressError, match="newer version"):
        AnswerCache(tmp_path / "new.sqlite", WANTED)


def test_a_broken_file_is_one_message(tmp_path):
    (tmp_path / "broken.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(CompressError, match="cannot be used"):
        AnswerCache(tmp_path / "broken.sqlite", WANTED)
