"""The cache of answers: another connection reads it at once, and what it counts."""

import subprocess
import sys

import pytest

from compress.errors import CompressError
from compress.label.answer_cache import Answer, AnswerCache, answers_file, request_key

GOOD, NONE = Answer("good", True, 40, 5, True), Answer("neither", False, 40, 9, True)


@pytest.fixture
def cache():
    made = AnswerCache(answers_file())
    yield made
    made.close()


def test_answers_are_read_by_another_connection_at_once(cache):
    cache.add("a", 0, 0, 100, GOOD)
    other = AnswerCache(answers_file())
    assert other.valid_answers("a", 1) == ["good"]
    other.close()


def test_an_answer_never_changes(cache):
    cache.add("a", 0, 0, 100, GOOD)
    cache.add("a", 0, 0, 100, NONE)
    assert cache.valid_answers("a", 1) == ["good"]


def test_samples_that_are_missing(cache):
    cache.add("a", 0, 0, 100, GOOD)
    cache.add("a", 1, 0, 100, NONE)
    cache.add("a", 2, 0, 100, NONE)
    cache.add("a", 2, 1, 100, NONE)
    assert cache.missing_samples("a", 4, attempts=2) == [(1, 1), (3, 0)]
    assert cache.missing_samples("b", 2, attempts=2) == [(0, 0), (1, 0)]


def test_only_the_texts_of_the_command_count_and_each_once(cache):
    for key in ("a", "b"):
        cache.add(key, 0, 0, 100, NONE)
        cache.add(key, 0, 1, 100, GOOD)
        cache.add(key, 7, 0, 100, GOOD)
    cache.add_text("a", 100)
    cache.add_text("a", 100)
    cache.add_text("c", 50)
    assert cache.count_texts() == (2, 150)
    used = cache.usage(samples=2, attempts=3)
    assert (used.answers, used.finished, used.input_tokens, used.output_tokens) == (1, 1, 80, 14)
    assert used.characters == 200
    assert cache.example_invalid() == "neither"


def test_a_key_depends_on_every_part():
    assert request_key(["a", "b"]) != request_key(["ab", ""])


def test_a_killed_writer_leaves_all_it_wrote(cache):
    code = (
        "import os, signal\nfrom compress.label.answer_cache import *\ncache = AnswerCache(answers_file())\n"
        "[cache.add('a', number, 0, 9, Answer('good', True, 1, 1, True)) for number in range(500)]\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert len(cache.valid_answers("a", 500)) == 500


def test_a_broken_file_is_one_message(tmp_path):
    (tmp_path / "broken.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(CompressError, match="cannot be used"):
        AnswerCache(tmp_path / "broken.sqlite")
