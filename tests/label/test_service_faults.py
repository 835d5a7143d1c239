"""What a failing service costs: a wait, another request, an unanswered text, or one message."""

import threading
import time
from email.utils import formatdate

import pytest

from compress.console import Console
from compress.errors import CompressError, UsageError
from compress.label.ask_service import MOST_UNANSWERED
from compress.label.chat_client import ServiceFailure, retry_after
from compress.label.label import dry_run
from compress.label.spending import LimitReached
from tests.label.chat_server import KEY, RESET, answer, by_word, failure, in_turn, slow


def test_a_busy_service_is_asked_again_when_it_says(labelling, server):
    server.reply = in_turn(by_word, failure(429, Retry_After="7"))
    assert labelling.run("concurrency=1").texts == 12
    assert len(server.requests) == 13
    assert 6.5 < max(labelling.waits) <= 7


def test_a_busy_service_that_does_not_say_is_asked_again_later_each_time(labelling, server):
    server.reply = in_turn(by_word, failure(429), failure(500))
    assert labelling.run("concurrency=1").texts == 12
    first, second = (seconds for seconds in labelling.waits if seconds > 0.01)
    assert 0.5 <= first <= 1
    assert 1 <= second <= 2


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (failure(503, "overloaded"), "status 503: .*overloaded"),
        ((200, {}, b'{"choices": ['), "no chat completion"),
        ((200, {}, {"choices": []}), "no chat completion"),
        ((200, {"Content_Length": "5000"}, b'{"choi'), "peer closed|incomplete"),
        (RESET, "reset|disconnected"),
    ],
    ids=["failing", "malformed", "without choices", "cut off", "reset"],
)
def test_a_service_that_keeps_failing_ends_in_one_message(labelling, server, reply, reason):
    server.reply = in_turn(by_word, by_word, *[reply] * 40)
    with pytest.raises(ServiceFailure, match=rf"does not answer after 3 requests: .*({reason})") as failed:
        labelling.run("concurrency=1")
    assert "2 of 12 answers are stored" in failed.value.message
    assert "the same command goes on" in failed.value.hint
    asked = 3 * (MOST_UNANSWERED + 1)  # so many texts in a row are not the texts' fault
    assert len(server.requests) == 2 + asked
    server.reply = by_word
    labelling.run()
    assert len(server.requests) == 2 + asked + 10


def test_a_text_that_is_never_answered_is_left_out(labelling, server):
    hopeless = None

    def reply(request):
        nonlocal hopeless
        text = request["messages"][-1]["content"]
        if hopeless is None and len(server.requests) > 2:
            hopeless = text
        return failure(500, "too long for me") if text == hopeless else by_word(request)

    server.reply = reply
    made = labelling.run("concurrency=1")
    assert (made.texts, len(server.requests)) == (11, 11 + 3)


def test_one_failure_does_not_end_a_run(labelling, server):
    server.reply = in_turn(by_word, (200, {}, b"{"), failure(500), by_word, (200, {"Content_Length": "5000"}, b"{"))
    assert labelling.run().texts == 12


def test_a_slow_service(labelling, server):
    server.reply = in_turn(by_word, slow(1.0))
    assert labelling.run("endpoint.timeout=0.3", "concurrency=1").texts == 12
    assert len(server.requests) == 13


def test_a_lost_answer_may_have_been_charged(labelling, server):
    server.reply = in_turn(by_word, (200, {}, b"{"), (200, {}, b"{"))
    with pytest.raises(Exception, match="limit of 1 is reached"):
        labelling.run("concurrency=1", "prices={input: 1000, output: 0}", "limit=1")
    assert len(server.requests) < 4


@pytest.mark.parametrize("lost", [(200, {}, b"{"), RESET, failure(504)], ids=["malformed", "reset", "gateway"])
def test_a_lost_answer_counts_in_later_commands(labelling, server, lost):
    prices = ["concurrency=1", "prices={input: 0, output: 1000}", "answer_tokens=500"]
    server.reply = in_turn(by_word, lost, failure(401))
    with pytest.raises(ServiceFailure, match=r"rejects .* 0\.5050 spent"):
        labelling.run(*prices)
    assert dry_run(labelling.load(*prices), Console("quiet")).spent == pytest.approx(0.505)
    with pytest.raises(LimitReached, match=r"the limit of 1 is reached: 0\.5050 is spent"):
        labelling.run(*prices, "limit=1")
    assert len(server.requests) == 3
    assert labelling.run(*prices, "limit=3").cost == pytest.approx(0.5 + 12 * 0.005)
    assert len(server.requests) == 3 + 11


@pytest.mark.parametrize("reply", [failure(500), failure(429), failure(400)])
def test_a_request_that_was_turned_away_costs_nothing(labelling, server, reply):
    server.reply = in_turn(by_word, reply)
    info = labelling.run("concurrency=1", "prices={input: 0, output: 1000}")
    assert info.cost == pytest.approx(0.005 * info.texts)


def test_a_long_pause_is_left_to_the_user(labelling, server):
    server.reply = in_turn(by_word, failure(429, Retry_After="7200"))
    with pytest.raises(ServiceFailure, match="asks to wait for 2 h"):
        labelling.run("concurrency=1")
    assert not [seconds for seconds in labelling.waits if seconds > 60]


@pytest.mark.parametrize("status", [401, 403])
def test_a_rejected_key_fails_at_once(labelling, server, status):
    server.reply = in_turn(failure(status, "Incorrect API key provided"))
    with pytest.raises(ServiceFailure, match=rf"rejects the key in SERVICE_KEY \(status {status}\)"):
        labelling.run()
    assert len(server.requests) == 1


def test_an_unknown_model_fails_at_once(labelling, server):
    server.reply = in_turn(failure(404, "The model `large` does not exist"))
    with pytest.raises(ServiceFailure, match=r"refuses the model 'large' .*does not exist"):
        labelling.run()
    assert len(server.requests) == 1


def test_an_empty_account_fails_at_once(labelling, server):
    server.reply = in_turn(failure(429, "You exceeded your quota", code="insufficient_quota"))
    with pytest.raises(ServiceFailure, match="has no money left"):
        labelling.run()
    assert len(server.requests) == 1


def test_a_refused_connection_fails_at_once(labelling):
    with pytest.raises(ServiceFailure, match=r"http://127.0.0.1:9/v1 does not answer: .*refused"):
        labelling.run("endpoint.url=http://127.0.0.1:9/v1")
    assert not [seconds for seconds in labelling.waits if seconds > 0.01]


def test_a_service_without_structured_output(labelling, server):
    def reply(request):
        if "response_format" in request:
            return failure(400, "response_format is not supported")
        if "max_completion_tokens" in request:
            return failure(400, "unknown field max_completion_tokens")
        return answer('```json\n{"label": "Good"}\n```')

    server.reply = reply
    assert labelling.run().texts == 12
    assert set(labelling.written.values()) == {"good"}
    assert len(server.requests) == 14


def test_a_service_that_states_what_it_lacks_in_a_form_of_its_own(labelling, server):
    def reply(request):
        lacks = "response_format" in request
        return (400, {}, {"detail": "unknown field response_format"}) if lacks else by_word(request)

    server.reply = reply
    assert (labelling.run().texts, len(server.requests)) == (12, 13)


def test_tokens_that_a_service_does_not_state_are_unknown(labelling, server):
    server.reply = lambda request: answer('{"label": "good"}', usage=None)
    info = labelling.run("prices={input: 1, output: 1}")
    assert (info.input_tokens, info.cost_of_million) == (None, None)
    assert info.cost > 0
    assert f"cost {info.cost:.4f} at most" in info.text


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": 40, "completion_tokens": None}, {"prompt_tokens": 10**30}])
def test_an_answer_with_broken_counts_is_still_an_answer(labelling, server, usage):
    """It was paid for: it is not asked for again."""

    def reply(request):
        status, headers, content = by_word(request)
        return status, headers, {**content, "usage": usage}

    server.reply = reply
    info = labelling.run("prices={input: 1, output: 1}")
    assert (info.texts, len(server.requests)) == (12, 12)
    assert info.cost_of_million is None


def test_no_request_waiting_for_the_limit_is_sent_after_a_failure(labelling, server):
    """Two requests fit the limit at a time; when one of them fails for good, those that wait are not sent."""
    ready = threading.Event()

    def reply(request):
        if len(server.requests) == 3:
            ready.wait(5)
            return failure(401)
        if len(server.requests) > 1:
            time.sleep(0.2)
            ready.set()
            time.sleep(0.2)
        return by_word(request)

    server.reply = reply
    with pytest.raises(ServiceFailure, match="rejects the key"):
        labelling.run("prices={input: 0, output: 1000}", "answer_tokens=100", "limit=0.25")
    assert len(server.requests) == 3


@pytest.mark.parametrize("url", ["http://localhost:abc/v1", "http://localhost:99999/v1", "http://a..b/v1"])
def test_an_impossible_address_is_found_before_anything_is_sent(labelling, url):
    with pytest.raises(CompressError, match=r"endpoint\.url: .*expected a host and a port that can exist"):
        labelling.run(f"endpoint.url={url}")


def test_an_impossible_proxy_is_one_message(labelling, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "foo://user:hunter2@proxy")
    with pytest.raises(UsageError, match=r"the client cannot be started: .*proxy") as failed:
        labelling.run()
    assert "hunter2" not in failed.value.message


def test_a_key_that_is_also_a_label_does_not_spoil_answers(labelling, server, monkeypatch):
    """Services on one's own machine take any key, such as `none`."""
    monkeypatch.setenv("SERVICE_KEY", "good")
    assert labelling.run().unanswered == 0


def test_a_key_with_quotes_is_refused(labelling, server, monkeypatch):
    monkeypatch.setenv("SERVICE_KEY", f"'{KEY}'")
    with pytest.raises(UsageError, match="SERVICE_KEY holds characters that no key has") as failed:
        labelling.run()
    assert KEY not in failed.value.message
    assert not server.requests


def test_retry_after_is_a_number_or_a_date():
    assert retry_after({}) is None
    assert retry_after({"retry-after": "2.5"}) == 2.5
    for value in ("soon", "inf", "nan"):
        assert retry_after({"retry-after": value}) is None
    assert 50 < retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)}) <= 61
