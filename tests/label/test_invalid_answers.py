"""Answers that are no labels, cut off, or refused: asked again where that may help, counted, and never guessed."""

import pytest

from compress.cli import main
from compress.errors import DataError
from compress.label.chat_client import ServiceFailure
from tests.label.chat_server import KEY, answer, by_word, failure, in_turn
from tests.label.conftest import TEXTS


@pytest.mark.parametrize(
    "reply",
    [
        answer('{"label": "great"}'),
        answer('{"label": "good", "why": "it says so"}'),
        answer("I would say good"),
        answer("", finish="stop"),
    ],
    ids=["wrong label", "more keys", "a sentence", "empty"],
)
def test_an_invalid_answer_is_asked_again_and_never_guessed(labelling, server, reply):
    labelling.rows(["a good film"])
    server.reply = in_turn(reply, reply)
    assert labelling.run("held_out=0.0").texts == 1
    assert len(server.requests) == 3


def test_a_text_without_a_valid_answer_is_left_out(labelling, server):
    server.reply = lambda request: answer("neither") if TEXTS[3] in str(request["messages"]) else by_word(request)
    info = labelling.run()
    assert (info.texts, info.unanswered) == (11, 1)
    assert TEXTS[3] not in labelling.written
    assert len(server.requests) == 11 + 3
    labelling.run()
    assert len(server.requests) == 14  # it was paid for three times and stays unanswered


def test_an_answer_that_was_cut_off_is_asked_for_again_with_more_tokens_alone(labelling, server):
    def thinking(request):
        long = TEXTS[3] in str(request["messages"]) and request["max_completion_tokens"] < 512
        return answer("", finish="length", usage=(40, 256)) if long else by_word(request)

    server.reply = thinking
    info = labelling.run()
    assert (info.texts, info.unanswered, info.cut_off, len(server.requests)) == (11, 1, 1, 12)
    assert "1 without a valid answer left out (1 cut off)" in info.text
    labelling.run("attempts=9")
    assert len(server.requests) == 12
    assert labelling.run("answer_tokens=512").texts == 12
    assert len(server.requests) == 13


def test_answers_that_are_all_cut_off_stop_the_run(labelling, server):
    labelling.rows([f"film {number}" for number in range(100)])
    server.reply = lambda request: answer("Let me think", finish="length")
    with pytest.raises(ServiceFailure, match=r"20 of the first 20 answers were cut off at 256 tokens") as failed:
        labelling.run("concurrency=1")
    assert "--set answer_tokens=1024" in failed.value.hint
    assert len(server.requests) <= 21  # one more may be under way


def test_left_out_rows_are_named_with_what_asks_again(labelling, server, capsys):
    def reply(request):
        shown = str(request["messages"])
        if TEXTS[3] in shown:
            return answer("", finish="length")
        if TEXTS[5] in shown:
            return answer('{"label": "neutral"}')
        return failure(400, "flagged by the filter") if TEXTS[4] in shown else by_word(request)

    server.reply = reply
    labelling.load()
    assert main(["label", str(labelling.file), "--to", str(labelling.target)]) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "1 row left out whose answer was cut off at 256 tokens; --set answer_tokens=512 asks again" in err
    assert "status 400: flagged by the filter; --retry-refused asks again" in err
    invalid = """1 row left out whose answers are not one of the labels, such as '{"label": "neutral"}'"""
    assert f"{invalid}; --set attempts=6 asks again" in err
    assert main(["label", str(labelling.file), "--to", str(labelling.target), "--answered"]) == 0
    assert invalid in " ".join(capsys.readouterr().err.split())


def declined(request):
    """The answer of a model that declines, as services with structured output give it."""
    status, headers, content = answer(None)
    content["choices"][0]["message"]["refusal"] = f"I cannot help with that, {KEY}"
    return status, headers, content


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (declined, "such as: I cannot help with that, ***; --retry-refused asks again"),
        (lambda request: answer('{"label": "good"}', finish="content_filter"), "--retry-refused asks again"),
    ],
    ids=["declined", "filtered"],
)
def test_an_answer_that_is_withheld_is_paid_for_once(labelling, server, capsys, reply, reason):
    server.reply = lambda request: reply(request) if TEXTS[3] in str(request["messages"]) else by_word(request)
    for _ in range(2):
        info = labelling.run("prices={input: 1000, output: 0}")
        assert (info.texts, info.refused, len(server.requests)) == (11, 1, 12)
        assert info.cost == pytest.approx(12 * 0.04)
    assert main(["label", str(labelling.file), "--to", str(labelling.target), "--answered"]) == 0
    assert reason in " ".join(capsys.readouterr().err.split())
    server.reply = by_word
    assert labelling.run(retry_refused=True).texts == 12


def test_a_model_that_declines_every_text_ends_in_one_message(labelling, server):
    labelling.rows([f"film {number}" for number in range(100)])
    server.reply = declined
    with pytest.raises(ServiceFailure, match=r"none of the first 20 answers .* 'I cannot help with that, \*\*\*'"):
        labelling.run("concurrency=1")
    assert len(server.requests) <= 21  # one more may be under way


@pytest.mark.slow
def test_answers_that_never_fit_stop_the_run(labelling, server):
    labelling.rows([f"film {number}" for number in range(100)])
    server.reply = lambda request: answer("as a language model")
    with pytest.raises(ServiceFailure, match=r"none of the first .* 'as a language model'") as failed:
        labelling.run("attempts=1")
    assert len(server.requests) < 40
    assert "--set attempts=2 asks for the same texts again" in failed.value.hint
    server.reply = by_word
    assert labelling.run("attempts=2").unanswered == 0


def test_a_refused_text_does_not_end_a_run(labelling, server):
    server.reply = lambda request: (
        failure(400, "context length") if TEXTS[3] in str(request["messages"]) else by_word(request)
    )
    info = labelling.run("concurrency=1")
    assert (info.texts, info.unanswered, info.refused) == (11, 1, 1)
    assert len(server.requests) == 12
    labelling.run()
    assert len(server.requests) == 12
    server.reply = by_word
    assert labelling.run(retry_refused=True).texts == 12
    assert len(server.requests) == 13


def test_a_refused_text_is_not_asked_about_for_its_other_samples(labelling, server):
    labelling.rows(["a good film", "a bad film"])
    server.reply = lambda request: (
        failure(400, "flagged") if "bad" in request["messages"][-1]["content"] else by_word(request)
    )
    assert labelling.run("samples=3", "concurrency=1", "held_out=0.0").refused == 1
    assert len(server.requests) == 3 + 1


def test_a_first_text_that_is_refused_does_not_end_a_run(labelling, server):
    server.reply = in_turn(failure(400, "context length"), failure(400, "context length"))
    assert labelling.run("concurrency=1").refused == 2


def test_a_service_that_refuses_every_text_ends_in_one_message(labelling, server):
    server.reply = lambda request: failure(400, "temperature must be 1")
    with pytest.raises(
        ServiceFailure, match=r"refuses the first 5 texts, such as: status 400: .*temperature must be 1"
    ):
        labelling.run()
    assert len(server.requests) == 5
    server.reply = by_word
    assert labelling.run().texts == 12  # not one is remembered as refused


def test_texts_that_are_refused_again_do_not_end_a_run(labelling, server):
    server.reply = lambda request: (
        failure(400, "flagged") if "bad" in str(request["messages"][-1]) else by_word(request)
    )
    labelling.rows([f"a {'bad' if number < 6 else 'good'} film {number}" for number in [9, *range(12)]])
    for retry in (False, True, False):
        assert labelling.run("concurrency=1", retry_refused=retry).refused == 6


def test_a_few_texts_that_are_all_refused(labelling, server):
    labelling.rows(["a good film"])
    server.reply = in_turn(failure(400, "too long"))
    for _ in range(2):
        with pytest.raises(DataError, match=r"answered none of 1 texts.*too long; --retry-refused asks again"):
            labelling.run()
    assert len(server.requests) == 1
